"""Properties that hold for any legal kernel, on kernels drawn at random."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox.cost import Options, attribute, predict
from pyptox.cost._machine import closed_form, full_cycles
from pyptox.cost._verify import plain_nest

CHIP = px.hardware.a2a3()
TYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
UNARY = (pl.exp, pl.negative, pl.absolute, lambda y: pl.multiply(y, 0.5), lambda y: pl.maximum_of(y, 0.0))
BINARY = (pl.add, pl.subtract, pl.multiply)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a random kernel does, fixed before it is read."""

    cube: bool
    outer: bool  # the reduction in two levels
    steady: bool  # a pipeline rather than a range
    chain: tuple[int, ...]  # vector operations, by number
    again: bool  # an operand is loaded again in the epilogue
    reduce: bool  # the epilogue scales by the largest element of a row


def _plan(rng) -> Plan:
    cube, outer, steady, again, reduce = (bool(flag) for flag in rng.integers(0, 2, 5))
    chain = tuple(int(n) for n in rng.integers(0, len(UNARY) + len(BINARY), rng.integers(0, 4)))
    return Plan(cube, outer, steady, chain, again, reduce)


def _kernel(plan: Plan) -> pl.Kernel:
    def loop(count, body, carry, stages):
        return pl.pipeline(count, body, carry, stages=stages) if plan.steady else pl.range(count, body, carry)

    @pl.kernel(
        outputs={"out": lambda a, b: pl.spec((a.shape[0], b.shape[1]), "fp32")},
        tile={"m": 32, "n": 64, "k": 32},
        ranges={"stages": (1, 4)},
    )
    def drawn(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes, stages: int = 2) -> None:
        (m, k), n = a.shape, b.shape[1]

        def block(i, j):
            row, column = i * tile.m, j * tile.n

            def multiply(at, acc):
                lhs = pl.load(a, (row, at), (tile.m, tile.k))
                return pl.matmul(lhs, pl.load(b, (at, column), (tile.k, tile.n)), acc)

            def accumulate(at, total):
                part = pl.load(b, (at, column), (1, tile.n), space=pl.Vec)
                return pl.add(total, pl.cast(part, "fp32"))

            step, start = accumulate, None
            if plan.cube:
                step, start = multiply, pl.zeros((tile.m, tile.n), "fp32", space=pl.Acc)
            else:
                start = pl.full((tile.m, tile.n), 1.0, "fp32")
            count = pl.cdiv(k, tile.k)
            if plan.outer:

                def half(h, carry):
                    return loop(pl.cdiv(count, 2), lambda kk, c: step((h * 2 + kk) * tile.k, c), carry, stages)

                y = loop(2, half, start, stages)
            else:
                y = loop(count, lambda kk, c: step(kk * tile.k, c), start, stages)
            if not plan.cube or plan.chain or plan.again or plan.reduce:
                y = pl.move(y, pl.Vec) if plan.cube else y
                other = pl.cast(pl.load(b, (0, column), (1, tile.n), space=pl.Vec), "fp32") if plan.again else y
                for number in plan.chain:
                    y = UNARY[number](y) if number < len(UNARY) else BINARY[number - len(UNARY)](y, other)
                if plan.reduce:
                    y = pl.subtract(y, pl.row_max(y))
            pl.store(out, (row, column), y)

        pl.grid((pl.cdiv(m, tile.m), pl.cdiv(n, tile.n)), block, order=pl.swizzled(2))

    return drawn


def _cases(count: int):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        kernel = _kernel(_plan(rng))
        m, k, n = (int(x) for x in rng.integers(1, 400, 3))
        dtype = str(rng.choice(["bf16", "fp16"]))
        specs = kernel.specs(px.spec((m, k), dtype), px.spec((k, n), dtype))
        sizes = {name: int(rng.choice([16, 32, 48, 64, 128])) for name in "mnk"}
        values = kernel.configuration(sizes | {"stages": int(rng.integers(1, 5))})
        yield seed, kernel, specs, {name: spec.shape for name, spec in specs.items()}, values


CASES = list(_cases(60))


@pytest.mark.parametrize("sync", ["manual", "auto"])
def test_closed_form_equals_the_full_simulation(sync):
    options, off = Options(warm=4, sync=sync), []
    for seed, kernel, specs, _, values in CASES:
        walk = plain_nest(kernel, specs, values, CHIP, options).walk
        full = full_cycles(walk)
        off.append(abs(closed_form(walk, 4) / full - 1))
        assert off[-1] < 0.01, (seed, values, off[-1])
    assert np.mean(off) < 1e-3


def test_never_below_the_bound_and_never_slower_with_more_bandwidth():
    times = CHIP.times
    faster = CHIP.replace(**{n: getattr(times, n) / 2 for n in ("load_byte", "hbm_us", "refetch_us", "l2_us")})
    for seed, kernel, specs, shapes, values in CASES:
        cost = predict(kernel, specs, shapes, values, CHIP, Options(warm=4))
        assert cost.bound_us <= cost.time_us, seed
        assert max(cost.busy.values()) <= cost.cycles * (1 + 1e-9), seed
        quicker = predict(kernel, specs, shapes, values, faster, Options(warm=4))
        assert quicker.time_us <= cost.time_us * (1 + 1e-9), seed


def test_attribution_adds_up():
    for seed, kernel, specs, shapes, values in CASES[:20]:
        total = predict(kernel, specs, shapes, values, CHIP, Options(warm=4)).time_us
        assert sum(attribute(kernel, specs, values, CHIP).values()) == pytest.approx(total, rel=1e-9), seed


def test_run_agrees_with_float64():
    rng = np.random.default_rng(1)
    for seed, kernel, specs, shapes, values in CASES[:12]:
        inputs = [(0.1 * rng.standard_normal(shapes[n])).astype(TYPES[specs[n].dtype]) for n in kernel.inputs]
        actual, expected = px.run(kernel, *inputs, **values), px.reference(kernel, *inputs, **values)
        scale = 1.0 + np.abs(expected).max()
        assert np.abs(np.asarray(actual, np.float64) - expected).max() < 1e-3 * scale, seed
