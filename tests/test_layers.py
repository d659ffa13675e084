"""The README's list of layers is true: imports point up that list only."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def levels() -> dict[str, int]:
    """Place of every package in the list."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("Each layer uses only those before it:")[1]
    found = {}
    for level, line in enumerate(text.split("```")[1].strip().splitlines()):
        first, *others = line.split("  ")[0].split(", ")
        within = first.rpartition(".")[0]
        names = [first, *(f"{within}.{name}" if name not in ("benchmarks",) else name for name in others)]
        found |= dict.fromkeys(names, level)
    return found


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports anywhere."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def layer_of(name: str, known: dict[str, int]) -> str | None:
    return next((layer for layer in known if f"{name}.".startswith(f"{layer}.")), None)


def test_imports_point_up_the_list():
    known = levels()
    packages = {p.parent for top in ("pyptox", "autotune", "models") for p in ROOT.glob(f"{top}/**/__init__.py")}
    named = {".".join(p.relative_to(ROOT).parts) for p in packages}
    assert {name for name in named if layer_of(name, known) is None} <= {"pyptox", "models"}
    wrong = []
    for path in (p for top in ("pyptox", "autotune", "models", "benchmarks") for p in ROOT.glob(f"{top}/**/*.py")):
        own = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts), known)
        if own is None:
            continue
        for name in imported(path):
            other = layer_of(name, known)
            if other and known[other] > known[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong
