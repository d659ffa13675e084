"""Changes of rounding against other implementations of them; searches against all subsets; digits against theory."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox.cost import explain
from pyptox.precision import (
    Configure,
    RelL2,
    Round,
    Widen,
    cast,
    emulated,
    fewest_widened,
    intermediates,
    significant_digits,
    what_if,
    widened,
)
from pyptox.precision._emulate import KEPT, MODES, Emulator
from pyptox.precision._what_if import _passes


@pl.kernel(outputs={"out": lambda x: pl.spec(x.shape, "fp32")}, tile={"m": 16})
def chain(x, out, *, tile):
    """Three casts: a coarse one that matters much, one that matters less, and one that matters little."""

    def block(i):
        part = pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec)
        coarse = pl.cast(pl.cast(part, "bf16"), "fp32")
        finer = pl.cast(pl.cast(part, "fp16"), "fp32")
        small = pl.cast(pl.cast(pl.multiply(part, 1e-3), "bf16"), "fp32")
        pl.store(out, (i * tile.m, 0), pl.add(pl.add(pl.multiply(coarse, 2.0), finer), small))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


@pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
def narrow_sums(x, out, *, tile):
    """Arithmetic in the type of ``x`` itself."""

    def block(i):
        part = pl.named(pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec), "loaded")
        total = pl.named(pl.row_sum(pl.multiply(part, part)), "squares")
        pl.store(out, (i * tile.m, 0), pl.divide(part, pl.sqrt(total)))

    pl.grid((pl.cdiv(x.shape[0], tile.m),), block)


def _x(shape=(20, 48), seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_as_written_it_is_what_the_kernel_computes():
    x = _x().astype(jnp.bfloat16)
    np.testing.assert_array_equal(emulated(narrow_sums, x), np.asarray(px.run(narrow_sums, x)))
    emulator = Emulator(chain, (_x(),), None, chain.configuration({}))
    np.testing.assert_array_equal(emulator.as_written[0], emulated(chain, _x()))
    assert [str(site).partition(" ")[2] for site in emulator.sites] == [
        "cast fp32→bf16",
        "cast fp32→fp16",
        "cast fp32→bf16",
    ]


@pytest.mark.parametrize("mode", [mode.value for mode in MODES])
def test_another_rounding_is_that_of_the_casts(mode):
    kernel, x = px.kernels.convert("bf16"), _x()
    emulator = Emulator(kernel, (x,), None, kernel.configuration({}))
    changed = emulator.outputs({emulator.sites[0]: [m.value for m in MODES].index(mode)})[0]
    np.testing.assert_array_equal(changed, np.asarray(cast(x, "bf16", mode)))


def test_a_widened_cast_is_the_kernel_without_it():
    emulator = Emulator(chain, (_x(),), None, chain.configuration({}))
    for site in emulator.sites:
        other = emulated(widened(chain, [site]), _x())
        np.testing.assert_array_equal(emulator.outputs({site: KEPT})[0], other)


def test_errors_and_times_of_changes():
    x, coarse = _x((16, 512)), f"test_what_if.py:{chain.function.__code__.co_firstlineno + 6}"
    wide, away, wider_tile = what_if(
        chain, x, changes=[Widen(coarse), Round(coarse, "trunc"), Configure({"m": 8})], m=16
    )
    reference = px.reference(chain, x, m=16)
    before = np.linalg.norm(emulated(chain, x, m=16) - reference) / np.linalg.norm(reference)
    assert wide.error_before == pytest.approx(before)
    assert wide.error < 0.5 * before
    assert away.error > 1.5 * before
    assert away.time_us == away.time_before_us
    specs = chain.specs(px.spec((16, 512), "fp32"))
    chip = px.hardware.a2a3()
    assert wider_tile.time_us == pytest.approx(float(explain(chain, specs, {"m": 8}, chip).time_us))
    assert wider_tile.error == pytest.approx(before)
    assert wide.time_us < wide.time_before_us  # one instruction less


def test_a_wide_cast_before_the_cube_costs_time():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 128)).astype(jnp.bfloat16) for n in (128, 1024, 1024))
    kernel, values = px.kernels.flash_attention, {"m": 128, "n": 256, "preload": 0}
    specs = kernel.specs(*(px.spec(a.shape, "bf16") for a in (q, k, v)))
    site = next(s for s in Emulator(kernel, (q, k, v), None, values).sites if s.operation == "cast")
    chip = px.hardware.a2a3()
    wide = explain(widened(kernel, [site]), specs, values, chip).time_us
    assert wide > explain(kernel, specs, values, chip).time_us


def test_the_fewest_casts_are_the_fewest_of_all_subsets():
    x = _x()
    emulator = Emulator(chain, (x,), None, chain.configuration({}))
    errors = {
        subset: emulator.error(emulator.outputs(dict.fromkeys(subset, KEPT)))
        for size in range(4)
        for subset in itertools.combinations(emulator.sites, size)
    }
    for threshold in (1e-2, 1e-3, 2e-4, 1e-5, 5e-8):
        found = fewest_widened(chain, x, gate=RelL2(threshold))
        passing = [subset for subset, error in errors.items() if error <= threshold]
        assert found.passed is bool(passing)
        if passing:
            assert len(found.sites) == min(map(len, passing))
            assert found.error == pytest.approx(errors[found.sites])
    assert len(fewest_widened(chain, x, gate=lambda report: report["out"].relative_l2 < 2e-4).sites) == 1


def test_a_gate_that_nothing_meets():
    found = fewest_widened(chain, _x(), gate=RelL2(1e-12))
    assert not found.passed
    assert "fails even with every cast widened" in str(found)
    assert found.tried == 8
    reference = px.reference(chain, _x())
    assert not _passes(RelL2(1e-12), chain, [emulated(chain, _x())], [np.asarray(reference)])


def test_an_unknown_line_is_named():
    with pytest.raises(px.PyptoxError, match=r"`site` must be a cast that rounds; got nowhere.py:1. The kernel has"):
        what_if(chain, _x(), changes=[Widen("nowhere.py:1")])


# -------------------------------------------------------------------------------------------------------------- digits
def test_digits_of_one_rounding_are_those_of_the_theory():
    x = np.full((16, 256), 1 + 2**-9, np.float32)  # a quarter of a step of bf16 above 1
    (digits,) = significant_digits(px.kernels.convert("bf16"), x, samples=64)
    spread = 2**-7 * np.sqrt(0.25 * 0.75)
    assert digits.mean.mean() == pytest.approx(1 + 2**-9, abs=3 * spread / np.sqrt(x.size * 64))
    assert digits.quantile(0.5) == pytest.approx(-np.log10(spread), abs=0.1)


def test_cancellation_leaves_no_digits_and_exact_results_all():
    @pl.kernel(outputs={"out": lambda x: x}, tile={"m": 16})
    def cancel(x, out, *, tile):
        def block(i):
            part = pl.load(x, (i * tile.m, 0), (tile.m, x.shape[1]), space=pl.Vec)
            pl.store(out, (i * tile.m, 0), pl.subtract(pl.add(part, 1e7), 1e7))

        pl.grid((pl.cdiv(x.shape[0], tile.m),), block)

    (lost,) = significant_digits(cancel, _x(), samples=16)
    assert lost.quantile(0.5) < 0.5
    (kept,) = significant_digits(px.kernels.copy, _x(), samples=3)
    assert np.isinf(kept.digits).all()
    assert kept.to_dict()["median"] is None
    with pytest.raises(px.PyptoxError, match="`samples` must be at least 3; got 1"):
        significant_digits(cancel, _x(), samples=1)


# -------------------------------------------------------------------------------------------------------- named tiles
def test_named_tiles_against_numpy():
    x = _x((20, 48)).astype(jnp.bfloat16)
    found = intermediates(narrow_sums, x, tolerance=1e-4)
    assert [tile.title for tile in found.tiles] == ["loaded", "squares"]
    assert found.first is not None
    assert found.first.title == "squares"
    wide = x.astype(np.float64)
    exact = (wide**2).sum(axis=1, keepdims=True)
    error = found.tiles[1].relative_l2
    assert 1e-4 < error < 1e-2
    assert found.tiles[1].elements == 20
    assert found.tiles[0].relative_l2 == 0.0
    assert found.tiles[1].largest <= 0.02 * exact.max()
    with pytest.raises(px.PyptoxError, match="`chain` names no tiles"):
        intermediates(chain, _x())


def test_a_rounding_that_has_no_table_is_refused_by_name():
    x = np.random.default_rng(0).standard_normal((8, 256)).astype("bfloat16")
    for mode in ("stochastic", "sideways"):
        with pytest.raises(px.PyptoxError, match=f"`rounding` of Round must be one of .*; got '{mode}'"):
            what_if(px.kernels.softmax, x, changes=[Round("_rows.py:46", mode)])


def test_the_time_of_a_widened_conversion_is_that_of_a_copy():
    x = np.random.default_rng(0).standard_normal((512, 4096)).astype(np.float32)
    (wide,) = what_if(px.kernels.convert("bf16"), x, changes=[Widen("_stream.py:21")])
    assert wide.error == 0.0
    copy, spec = px.kernels.copy, px.spec(x.shape, "fp32")
    assert wide.time_us == pytest.approx(
        explain(copy, copy.specs(spec), copy.configuration({}), px.hardware.a2a3()).time_us, rel=1e-6
    )
