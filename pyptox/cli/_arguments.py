"""From command line text to kernels, specs and parameter values."""

import ast
import difflib
import inspect
from collections.abc import Callable, Sequence
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


def kernel_named(text: str) -> Kernel:
    """The library kernel called so; of a family of kernels the member with these arguments, ``top_k_groups(8, 4)``."""
    fixed = {n for n, value in vars(kernels).items() if isinstance(value, Kernel)}
    families = {n for n, value in vars(kernels).items() if callable(value) and not n.startswith("_")} - fixed
    if text in fixed:
        return vars(kernels)[text]
    name, parenthesis, rest = text.partition("(")
    if name in families and not parenthesis:
        raise KernelError(f"`KERNEL` {name} expects {_parameters(vars(kernels)[name])}; {_such_as(name)}")
    if not (name in families and parenthesis and rest.endswith(")")):
        known = sorted(fixed | {f"{name}{_parameters(vars(kernels)[name])}" for name in families})
        near = difflib.get_close_matches(name, sorted(fixed | families), 1)
        meant = f". Did you mean {near[0]}?" if near else ""
        raise KernelError(f"`KERNEL` must be one of {', '.join(known)}; got {text!r}{meant}")
    try:
        arguments = ast.literal_eval(f"[{rest[:-1]}]")
    except (SyntaxError, ValueError):
        arguments = [part.strip() for part in rest[:-1].split(",")]
    try:
        return vars(kernels)[name](*arguments)
    except TypeError:
        raise KernelError(f"`{name}` expects {_parameters(vars(kernels)[name])}; got {text!r}") from None


def _such_as(name: str) -> str:
    """``try "top_k_groups(8)"``: a member of the family, by the kinds of its arguments without a default."""
    needed = [p for p in inspect.signature(vars(kernels)[name]).parameters.values() if p.default is p.empty]
    values = ", ".join("bf16" if p.annotation in (str, "str") else "8" for p in needed)
    return f'try "{name}({values})"'


def _parameters(function: Callable) -> str:
    """``(k, groups=1)``."""
    parameters = inspect.signature(function).parameters.values()
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"


def specs_of(kernel: Kernel, m: int, k: int, n: int, dtype: str, groups: int, inputs: Sequence[str]) -> dict[str, Spec]:
    """The spec of every tensor of ``kernel``: from ``inputs``, or for a product of ``m x k`` by ``k x n``."""
    if inputs:
        return kernel.specs(**_given_specs(inputs, dtype))
    sizes = {"m": m, "k": k, "n": n, "g": groups}
    axes = {"x": "mk", "w": "gkn"} if kernel.name == "grouped_matmul" else _AXES.get(kernel.name)
    if axes is None:
        each = " ".join(f"--input {name}=SIZES" for name in kernel.inputs)
        raise KernelError(f"`{kernel.name}` expects the sizes of its inputs; got none. Try {each}, such as 16x8x5x128")
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


_FORM = "NAME=SIZES[:DTYPE], such as q=16x8x5x128:bf16, or the data of a control input, lengths=40,7 (one: 40,)"


def _given_specs(inputs: Sequence[str], dtype: str) -> dict[str, Spec]:
    """What ``--input`` says of each tensor: sizes with ``x`` between them, or the data of a control input."""
    given: dict[str, Spec] = {}
    for text in inputs:
        name, equals, value = text.partition("=")
        sizes, _, own = value.partition(":")
        data = "," in sizes
        try:
            numbers = tuple(int(part) for part in sizes.removesuffix(",").split("," if data else "x"))
        except ValueError:
            numbers = ()
        if not (name and equals and numbers) or (data and own):
            raise ValueError(f"`--input` expects {_FORM}; got {text!r}")
        if name in given:
            raise ValueError(f"`--input {name}` must be given once; got it again as {text!r}. Leave one out")
        given[name] = control(list(numbers)) if data else Spec(numbers, own or dtype)
    return given


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
