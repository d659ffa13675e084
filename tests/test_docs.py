"""The examples of the documentation run."""

import doctest
import re
from pathlib import Path

import pytest

import pyptox as px

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/extending.md", "docs/precision.md"])
def test_examples_run(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "example"})


KERNELS = {name: value for name, value in vars(px.kernels).items() if isinstance(value, px.Kernel) or callable(value)}


@pytest.mark.parametrize("name", KERNELS)
def test_examples_of_kernels_run(name: str) -> None:
    # a kernel is a value, whose docstring a doctest collector passes over
    example = doctest.DocTestParser().get_doctest(KERNELS[name].__doc__ or "", {}, name, None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0
