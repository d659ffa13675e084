"""From command line text to kernels, specs and parameter values."""

from collections.abc import Sequence
from typing import Any

from .. import kernels
from .._errors import KernelError
from ..lang._kernel import Kernel, Parameter
from ..lang._types import Spec, control

_AXES = {
    "matmul": {"a": "mk", "b": "kn"},
    "matmul_split_k": {"a": "mk", "b": "kn"},
    "matmul_split_k_nt": {"a": "mk", "b": "nk"},
    "matmul_panels": {"a": "mk", "b": "nk"},
    "matmul_nt": {"a": "mk", "b": "nk"},
    "matmul_staged": {"a": "mk", "b": "nk"},
    "flash_attention": {"q": "gmk", "k": "gnk", "v": "gnk"},
    **{key: {"x": "mn", "weight": "n"} for key in ("rms_norm", "rms_norm_tiled")},
    **{key: {"x": "mn", "weight": "n", "bias": "n"} for key in ("layer_norm", "layer_norm_tiled")},
    **{key: {"x": "mn"} for key in ("softmax", "softmax_two_pass", "softmax_online")},
    **{key: {"x": "mn"} for key in ("quantize_per_token", "quantize_per_token_tiled")},
    "swiglu": {"gate": "mn", "up": "mn"},
    "residual_add": {"residual": "mn", "x": "mn"},
    "matmul_bias_activation": {"a": "mk", "b": "kn", "bias": "n"},
}
"""Axes of each input by kernel. Inputs that are vectors are float32, the others have the dtype asked for."""


def kernel_named(name: str) -> Kernel:
    """The library kernel called ``name``."""
    known = sorted(n for n, value in vars(kernels).items() if isinstance(value, Kernel))
    if name not in known:
        raise KernelError(f"`KERNEL` must be one of {', '.join(known)}; got {name!r}")
    return vars(kernels)[name]


def specs_of(kernel: Kernel, m: int, k: int, n: int, dtype: str, groups: int = 8) -> dict[str, Spec]:
    """The spec of every tensor of ``kernel`` for a product of ``m x k`` by ``k x n``."""
    sizes = {"m": m, "k": k, "n": n, "g": groups}
    axes = {"x": "mk", "w": "gkn"} if kernel.name == "grouped_matmul" else _AXES.get(kernel.name)
    if axes is None:
        raise KernelError(f"`{kernel.name}` has no shapes on the command line; use pyptox from Python")
    for axis in sorted(set("".join(axes.values()))):
        option = "--groups" if axis == "g" else f"--{axis}"
        if sizes[axis] < 1:
            raise ValueError(f"`{option}` of {kernel.name} must be at least 1; got {sizes[axis]}. Give its size")
    if kernel.name == "grouped_matmul":
        each = [m // groups + (g < m % groups) for g in range(groups)]
        return kernel.specs(Spec((m, k), dtype), Spec((groups, k, n), dtype), control(each))
    return kernel.specs(
        **{name: Spec(tuple(sizes[x] for x in axes[name]), dtype if len(axes[name]) > 1 else "fp32") for name in axes}
    )


def given_values(kernel: Kernel, tile: str, stages: int | None, settings: Sequence[str]) -> dict[str, Any]:
    """The values that ``--tile``, ``--stages`` and ``--set`` give to parameters."""
    given: dict[str, Any] = {} if stages is None else {"stages": stages}
    for text in [*(part for part in tile.split(",") if part), *settings]:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise ValueError(f"`--tile` and `--set` expect name=value; got {text!r}. Try --tile m=16,n=256,k=256")
        if name.strip() in given:
            raise ValueError(f"`{name.strip()}` must be given once; got it again as {text!r}. Leave one out")
        given[name.strip()] = value.strip()
    kinds = {p.name: p for p in kernel.parameters}
    for name, value in given.items():
        parameter = kinds.get(name)
        if parameter is None or not isinstance(value, str):
            continue
        if parameter.kind == "choice":
            given[name] = _option(parameter, value)
        else:
            try:
                given[name] = int(value)
            except ValueError:
                raise ValueError(f"`{name}` must be an integer; got {value!r}") from None
    return given


def _option(parameter: Parameter, text: str) -> Any:
    """The option that is spelled so; the text itself where there is none, which the kernel then refuses."""
    return {str(option).lower(): option for option in parameter.options}.get(text.lower(), text)


def searched_choices(kernel: Kernel, names: Sequence[str]) -> dict[str, tuple]:
    """The options of each choice in ``names``."""
    known = {p.name: p.options for p in kernel.parameters if p.kind == "choice"}
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"`--search` must name a choice of `{kernel.name}`; got {name!r}; {has}")
    return {name: known[name] for name in names}


def problem_of(
    name: str,
    m: int,
    k: int,
    n: int,
    dtype: str,
    groups: int,
    tile: str,
    stages: int | None,
    settings: Sequence[str] | None,
) -> tuple[Kernel, dict[str, Spec], dict[str, Any]]:
    """The kernel, specs and configuration that a command is asked about."""
    kernel = kernel_named(name)
    return (
        kernel,
        specs_of(kernel, m, k, n, dtype, groups),
        kernel.configuration(given_values(kernel, tile, stages, settings or [])),
    )
