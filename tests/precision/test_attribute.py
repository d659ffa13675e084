"""The attribution against float64, finite differences, and faults planted in kernels of the library."""

import importlib.util
import inspect
import json
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox import program as pp
from pyptox._float64 import float64_scope
from pyptox.cli import main
from pyptox.precision import attribute, attribute_program, element, mean_error
from pyptox.precision._shadow import shadow_of

_SPEC = importlib.util.spec_from_file_location("library", Path(__file__).with_name("library.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
library = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(library)

QUICK = ("matmul_split_k", "softmax_online", "quantize_per_token", "grouped_matmul")
EXACT = ("matmul_int8", "gather_rows", "cache_write", "argmax_shard", "argmax_merge", "top_k_groups", "copy")


def _check(name: str) -> None:
    kernel, inputs, values = library.CASES[name]
    report = attribute(kernel, *inputs, **values)
    assert report.holds, report
    assert report.exact or 0.95 < report.ratio < 1.05
    for got, expected in zip(report.reference, _tuple(px.reference(kernel, *inputs, **values)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    for got, expected in zip(report.outputs, _tuple(px.run(kernel, *inputs, **values)), strict=True):
        assert got.dtype == expected.dtype
        wide, other = (np.asarray(x).astype(np.float64) for x in (got, expected))
        np.testing.assert_allclose(wide, other, rtol=2e-2, atol=2e-2 * np.abs(other).max())


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("name", QUICK)
def test_the_shares_add_up(name):
    _check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in library.CASES if name not in QUICK])
def test_the_shares_add_up_on_the_whole_library(name):
    _check(name)


def test_every_kernel_of_the_library_is_a_case():
    covered = {kernel.name.partition("(")[0] for kernel, _, _ in library.CASES.values()}
    known = {name for name, value in vars(px.kernels).items() if callable(value) and not name.startswith("_")}
    assert covered >= known


@pytest.mark.parametrize("name", EXACT[:3])
def test_what_rounds_nothing_is_exact(name):
    kernel, inputs, values = library.CASES[name]
    report = attribute(kernel, *inputs, **values)
    assert report.exact
    assert report.holds
    assert report.table() == "exact: stored values and float64 agree in every element"


def test_with_every_theta_at_one_the_shadow_is_the_stored_result_and_slopes_are_finite_differences():
    kernel, inputs, values = library.CASES["softmax_online"]
    specs = kernel.specs(px.spec(inputs[0].shape, "bf16"))
    with float64_scope():
        shadow = shadow_of(kernel, specs, values, frozenset())
        assert shadow_of(kernel, specs, dict(values), frozenset()) is shadow  # compiled once
        given = {"x": jnp.asarray(inputs[0])}
        low, high, _ = shadow.forward(given, {}, jnp.ones(shadow.capacity, jnp.float64))
        np.testing.assert_allclose(np.asarray(low[0]).astype(float), np.asarray(high[0]), atol=1e-15)
        weights = np.random.default_rng(1).standard_normal(high[0].shape)
        half = jnp.full(shadow.capacity, 0.5, jnp.float64)
        slopes, _ = shadow.pull(given, {}, half, (jnp.asarray(weights),))
        number = next(number for site, number in shadow.sites.items() if site.operation == "exp")
        step = 0.25
        ends = [shadow.forward(given, {}, half.at[number].add(s))[1][0] for s in (step, -step)]
        difference = float(np.sum(weights * (np.asarray(ends[0]) - np.asarray(ends[1])))) / (2 * step)
    assert float(slopes[number]) == pytest.approx(difference, rel=1e-3)


def test_the_stored_values_are_rounded_operation_by_operation():
    rng = np.random.default_rng(1)
    x, cos, sin = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3, 64), (4, 32), (4, 32)))
    report = attribute(px.kernels.rope, x, cos, sin)
    a, b, c, s = x[..., :32], x[..., 32:], cos[:, None], sin[:, None]
    np.testing.assert_array_equal(report.outputs[0], np.concatenate([a * c - b * s, b * c + a * s], axis=-1))
    assert {share.site.operation for share in report.shares} == {"multiply", "add", "subtract"}


def test_functionals():
    kernel, inputs, values = library.CASES["matmul"]
    bias = attribute(kernel, *inputs, functional=mean_error, **values)
    errors = np.asarray(bias.outputs[0]).astype(float) - bias.reference[0]
    assert bias.observed == pytest.approx(errors.mean())
    assert bias.total == pytest.approx(errors.mean(), rel=0.01)
    one = attribute(kernel, *inputs, functional=element(3, 4), **values)
    assert one.observed == pytest.approx(errors[3, 4])
    with pytest.raises(px.PyptoxError, match=r"`element` must be inside the outputs, of shapes \(24, 50\)"):
        attribute(kernel, *inputs, functional=element(99, 0), **values)


# ------------------------------------------------------------------------------------------------------- when it fails
@pl.kernel(outputs={"out": lambda x: pl.spec((x.shape[0], 1), "int32")}, tile={"m": 16})
def narrow_argmax(x, out, *, tile):
    def block(i):
        wide = pl.cast(pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec), "bf16")
        pl.store(out, (i * tile.m, 0), pl.row_argmax(wide))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


def test_changed_decisions_are_flagged():
    x = (1 + 1e-4 * np.random.default_rng(0).standard_normal((16, 64))).astype(np.float32)
    report = attribute(narrow_argmax, x)
    assert not report.holds
    assert not report.exact
    assert report.unequal_integers > 0
    assert any("decisions at test_attribute.py" in problem for problem in report.problems)


@pl.kernel(outputs={"out": lambda x: pl.spec(x.shape, "fp16")}, tile={"m": 16})
def squares(x, out, *, tile):
    def block(i):
        part = pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec)
        pl.store(out, (i * tile.m, 0), pl.cast(pl.multiply(part, part), "fp16"))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


def test_an_overflow_is_flagged():
    report = attribute(squares, np.full((16, 32), 300, np.float32))
    assert not report.holds
    assert "overflow" in report.problems[0]


@pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
def steep(x, out, *, tile):
    """Rounds far too much for any expansion: exp of a coarse number."""

    def block(i):
        part = pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec)
        coarse = pl.cast(pl.cast(part, "int8"), "fp32")
        pl.store(out, (i * tile.m, 0), pl.exp(pl.multiply(coarse, 8.0)))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


def test_errors_too_large_for_first_order_are_flagged():
    report = attribute(steep, np.random.default_rng(0).uniform(-3, 3, (16, 32)).astype(np.float32))
    assert not report.holds
    assert "first order does not hold" in report.problems[0]


# ------------------------------------------------------------------------------------------------------- planted faults
def _faulty(module: types.ModuleType, name: str, text: str, fault: str) -> tuple[px.Kernel, int]:
    """A kernel of the library with ``text`` replaced by ``fault``, and the line that now holds the fault."""
    source = inspect.getsource(module)
    assert source.count(text) == 1, text
    line = source[: source.index(text)].count("\n") + 1
    changed = types.ModuleType(module.__name__)
    changed.__package__ = "pyptox.kernels"
    exec(compile(source.replace(text, fault), module.__file__ or "", "exec"), vars(changed))
    return vars(changed)[name], line


def _module(kernel: px.Kernel) -> types.ModuleType:
    module = inspect.getmodule(kernel.function)
    assert module is not None
    return module


FAULTS = {
    "a cast in two hops": (
        "flash_attention",
        "pl.move(pl.cast(p, dtype), pl.GM)",
        'pl.move(pl.cast(pl.cast(pl.cast(p, "int8"), "fp32"), dtype), pl.GM)',
        lambda x: x,
    ),
    "the accumulator narrowed": (
        "rms_norm_tiled",
        "            return pl.add(pl.row_sum(pl.multiply(wide, wide)), total)",
        '            return pl.cast(pl.cast(pl.add(pl.row_sum(pl.multiply(wide, wide)), total), "bf16"), "fp32")',
        lambda x: x.astype(np.float32),
    ),
    "powers narrowed": (
        "softmax",
        "powers = pl.exp(pl.subtract(wide, pl.row_max(wide)))",
        'powers = pl.cast(pl.cast(pl.exp(pl.subtract(wide, pl.row_max(wide))), "bf16"), "fp32")',
        lambda x: x.astype(np.float32),
    ),
    "a scale folded in after the narrowing": (
        "w8a8_matmul_fp32",
        'y = pl.multiply(pl.multiply(pl.cast(pl.move(acc, pl.Vec), "fp32"), rows), columns)',
        'y = pl.multiply(pl.multiply(pl.cast(pl.cast(pl.move(acc, pl.Vec), "fp16"), "fp32"), rows), columns)',
        lambda x: x // 8 if x.dtype == np.int8 else x,
    ),
}
"""Kernel, text, fault, and what makes its inputs ones that the rest of the kernel rounds less than the fault."""


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=pytest.mark.slow) if FAULTS[f][0] == "flash_attention" else f for f in FAULTS]
)
def test_a_planted_fault_is_blamed_on_its_line(fault):
    name, text, changed, prepare = FAULTS[fault]
    kernel, inputs, values = library.CASES[name]
    faulty, line = _faulty(_module(kernel), kernel.name, text, changed)
    report = attribute(faulty, *map(prepare, inputs), **values)
    (file, blamed), share = next(iter(report.by_line().items()))
    assert (file, blamed) == (_module(kernel).__file__, line), str(report)
    assert abs(share) > 0.9 * report.observed
    assert report.holds, str(report)
    right = attribute(kernel, *map(prepare, inputs), **values)
    assert report.observed > 5 * right.observed


def test_ties_away_are_blamed_for_a_bias():
    x = np.abs(np.random.default_rng(0).standard_normal((16, 256)).astype(np.float32))
    grid = x.astype(jnp.bfloat16).astype(np.float32)
    ties = grid + 0.5 * np.exp2(np.floor(np.log2(grid)) - 7).astype(np.float32)
    away = attribute(px.kernels.convert("bf16", "round"), ties, functional=mean_error)
    even = attribute(px.kernels.convert("bf16", "rint"), ties, functional=mean_error)
    assert away.shares[0].site.operation == "cast"
    assert away.shares[0].share == pytest.approx(away.observed)
    assert away.observed > 5 * abs(even.observed)


# ------------------------------------------------------------------------------------------------------------ programs
@pp.program
def two_layers(x, gain, w, u):
    hidden = pp.submit(px.kernels.matmul, pp.submit(px.kernels.rms_norm, x, gain), w, name="first", m=16, n=32, k=64)
    return pp.submit(px.kernels.matmul, hidden, u, name="second", m=16, n=32, k=64)


def _two_layers():
    rng = np.random.default_rng(3)
    x, w, u = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((16, 96), (96, 64), (64, 80)))
    return x, (1 + 0.1 * rng.standard_normal(96)).astype(np.float32), w, u


def test_a_program_is_attributed_task_by_task():
    arrays = _two_layers()
    report = attribute_program(two_layers, *arrays)
    assert report.holds, report
    assert 0.97 < report.ratio < 1.03
    np.testing.assert_allclose(report.reference[0], pp.reference(two_layers, *arrays), rtol=1e-9, atol=1e-9)
    casts = {share.task for share in report.shares[:3]}
    assert casts == {"t0 rms_norm", "t1 first", "t2 second"}


def test_a_program_that_updates_views_and_adds():
    @pp.program
    def split(a, b, cache, slots):
        product = pp.submit(px.kernels.matmul_split_k, a, b, m=16, n=32, k=32, splits=2)
        pp.submit(px.kernels.matmul_split_k, a, b, out=product, m=16, n=32, k=32, splits=2)
        narrow = pp.submit(px.kernels.convert("bf16"), product, m=16, n=32)
        return pp.submit(px.kernels.cache_write, narrow, slots, cache, m=16, n=32)

    rng = np.random.default_rng(5)
    a, b, cache = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((16, 64), (64, 32), (40, 32)))
    slots = rng.permutation(40)[:16].astype(np.int32)
    report = attribute_program(split, a, b, cache, slots)
    assert report.holds, report
    assert report.shares[0].site.types == "fp32→bf16"
    assert 0.97 < report.ratio < 1.03
    np.testing.assert_allclose(report.reference[0], pp.reference(split, a, b, cache, slots), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- the command line
def _run(capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["check", "softmax", "--m", "4", "--n", "64", "--attribute", *arguments])
    return int(stop.value.code or 0), capsys.readouterr().out


def test_check_attribute(capsys):
    code, out = _run(capsys)
    assert code == 0
    assert "first order holds" in out
    assert "cast fp32→bf16" in out
    code, out = _run(capsys, "--json")
    answer = json.loads(out)["attribution"]
    assert code == 0
    assert answer["holds"]
    assert answer["shares"][0]["types"] == "fp32→bf16"
    assert answer["total"] == pytest.approx(answer["observed"], rel=0.01)
