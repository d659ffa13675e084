"""``import pyptox`` is light; its other packages come when they are asked for."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pyptox as px


def test_every_package_is_reachable_and_none_is_imported_before():
    folder = Path(px.__file__).parent
    packages = sorted(p.parent.name for p in folder.glob("*/__init__.py") if p.parent.name != "cli")
    script = (
        "import sys, pyptox as px\n"
        f"late = [n for n in px._LAZY if f'pyptox.{{n}}' in sys.modules]\n"
        "assert not late, late\n"
        f"assert set({packages!r}) <= set(dir(px)), dir(px)\n"
        "assert px.precision.RelL2(1.0) and 'pyptox.precision' in sys.modules\n"
        f"assert all(getattr(px, name).__name__ == 'pyptox.' + name for name in {packages!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stderr


def test_what_there_is_not_is_an_attribute_error():
    assert importlib.import_module("pyptox.precision") is px.precision
    with pytest.raises(AttributeError, match="module 'pyptox' has no attribute 'precison'"):
        _ = px.precison
