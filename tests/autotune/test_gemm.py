"""Model searches on a synthetic, differentiable GEMM cost.

Tiles of m, n and k with ceil effects, double-buffered loads under the compute of the step before, a store per
output tile, waves over the cores and three capacity limits: the shape of the real problem without its detail.
The score (NumPy) and the relaxation (JAX) are the same formula; `ceil` is exact in value and passes its slope
straight through.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import AbstractSearch, Gradient, Integer, Local, Multiple, PowerOfTwo, Random, Space, minimise

CORES, LOAD, STORE = 24, 96.0, 64.0  # cores, and bytes a cycle
LEFT, RIGHT, ACC = 65536, 65536, 131072  # bytes; the operands are held `stages` times
STEP_CYCLES, TILE_CYCLES = 24.0, 220.0


def small_space() -> Space:
    """Tiles of 16 to 512 in each direction, two buffers, under the capacity limits."""
    return _limited(Space(**_tiles(), stages=Integer(2, 2), split=PowerOfTwo(1, 1)))


def space() -> Space:
    """The same with one to four buffers and the depth split over up to 16 cores."""
    return _limited(Space(**_tiles(), stages=Integer(1, 4), split=PowerOfTwo(1, 16)))


def _tiles() -> dict[str, Multiple]:
    return {name: Multiple(16, 512, 16) for name in ("tile_m", "tile_n", "tile_k")}


def _limited(free: Space) -> Space:
    free = free.where("left", lambda at: at["tile_m"] * at["tile_k"] * 2 * at["stages"] <= LEFT)
    free = free.where("right", lambda at: at["tile_n"] * at["tile_k"] * 2 * at["stages"] <= RIGHT)
    return free.where("acc", lambda at: at["tile_m"] * at["tile_n"] * 4 <= ACC)


def cycles(points: dict[str, Any], shape: Any, xp: Any, ceil: Any) -> Any:
    """Cycles of a float16 GEMM of shape (M, N, K) with float32 accumulation."""
    m, n, k, stages, split = (points[name] for name in ("tile_m", "tile_n", "tile_k", "stages", "split"))
    rows, columns, depth = shape
    steps = ceil(depth / split / k)
    compute = ceil(m / 16) * ceil(n / 16) * ceil(k / 16)
    load = (m + n) * k * 2 / LOAD
    step = xp.maximum(load, compute) + xp.minimum(load, compute) * (2 / stages - 0.5) / 1.5 + STEP_CYCLES
    tile = load + compute + (steps - 1) * step + m * n * 4 / STORE * (1 + (split - 1) / 8)
    waves = ceil(ceil(rows / m) * ceil(columns / n) * split / CORES)
    return waves * (tile + TILE_CYCLES)


def score(shape: tuple[int, int, int]) -> Any:
    """The exact score of a batch of points for a shape."""

    def exact(points: dict[str, np.ndarray]) -> np.ndarray:
        floats = {name: column.astype(np.float64) for name, column in points.items()}
        return cycles(floats, shape, np, np.ceil)

    return exact


@jax.custom_jvp
def _ceil(x: jax.Array) -> jax.Array:
    return jnp.ceil(x - 1e-4)


@_ceil.defjvp
def _ceil_jvp(primals: Any, tangents: Any) -> Any:
    return _ceil(primals[0]), tangents[0]


@jax.jit
def value_and_grad(shape: Any, points: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Relaxed cycles with capacity penalties and their gradient; `bound` holds the shape."""

    def total(points: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        m, n, k, stages = (points[name] for name in ("tile_m", "tile_n", "tile_k", "stages"))
        used = (m * k * 2 * stages / LEFT, n * k * 2 * stages / RIGHT, m * n * 4 / ACC)
        excess = sum(jax.nn.relu(jnp.log(part)) for part in used)
        values = cycles(points, shape, jnp, _ceil) * (1 + 4 * excess)
        return values.sum(), values

    grads, values = jax.grad(total, has_aux=True)(points)
    return values, grads


def random_shape(rng: np.random.Generator) -> tuple[int, int, int]:
    """Log-uniform from a decode step's rows to a prefill's, multiples of nothing in particular."""
    rows = int(2 ** rng.uniform(4, 13))
    return rows, int(2 ** rng.uniform(8, 14)), int(2 ** rng.uniform(8, 14))


def bound(shape: tuple[int, int, int]) -> Gradient:
    return Gradient(functools.partial(value_and_grad, jnp.array(shape, jnp.float32)))


def close(free: Space, search: Any, shapes: list[tuple[int, int, int]], evaluations: list[int] | None) -> Any:
    """For each shape the value found over the best one, and what was spent."""
    grid = free.enumerate()
    gaps, exact, relaxed = [], [], []
    for number, shape in enumerate(shapes):
        made: AbstractSearch = search(shape)
        limit = None if evaluations is None else evaluations[number]
        found = minimise(score(shape), free, made, seed=number, evaluations=limit)
        gaps.append(found.value / score(shape)(grid).min())
        exact.append(found.evaluations)
        relaxed.append(found.relaxed)
    return np.array(gaps), exact, relaxed


def test_relaxation_equals_the_score_at_legal_points_and_its_gradient_is_finite() -> None:
    rng = np.random.default_rng(0)
    points = space().sample(rng, 500)
    for shape in (random_shape(rng) for _ in range(5)):
        relaxed = {name: jnp.asarray(column, jnp.float32) for name, column in points.items()}
        values, grads = value_and_grad(jnp.array(shape, jnp.float32), relaxed)
        np.testing.assert_allclose(values, score(shape)(points), rtol=2e-3)
        assert all(bool(jnp.isfinite(column).all()) for column in grads.values())


def test_one_compilation_serves_all_shapes() -> None:
    traces = []

    @jax.jit
    def counted(shape: Any, points: Any) -> Any:
        traces.append(shape)
        return value_and_grad(shape, points)

    rng = np.random.default_rng(0)
    for _ in range(4):
        shape = random_shape(rng)
        search = Gradient(functools.partial(counted, jnp.array(shape, jnp.float32)))
        minimise(score(shape), small_space(), search)
    assert len(traces) == 1


def test_gradient_is_within_two_per_cent_of_exhaustive_for_tiles() -> None:
    rng = np.random.default_rng(302)
    shapes = [random_shape(rng) for _ in range(100)]
    free = small_space()
    gaps, exact, relaxed = close(free, bound, shapes, None)
    assert np.sum(gaps <= 1.02) >= 95
    assert np.mean(exact) < 0.25 * free.census().legal
    assert np.mean(exact) + np.mean(relaxed) < 0.5 * free.census().legal
    chance, _, _ = close(free, lambda shape: Random(), shapes, exact)
    assert np.sum(chance <= 1.02) < 60


@pytest.mark.slow
def test_gradient_beats_local_and_random_at_equal_evaluations_on_the_joint_space() -> None:
    """1000 of 38,710 legal points; the rivals also get the gradients as evaluations.

    Over four sets of 100 shapes 94 to 96 were within two per cent; with the gradients counted for it, the
    wide local search had 89 to 93 (on tiles alone 94 to 99 against 93 and 94).
    """
    rng = np.random.default_rng(302)
    shapes = [random_shape(rng) for _ in range(100)]
    free, budget = space(), [1000] * len(shapes)
    gaps, exact, relaxed = close(free, bound, shapes, budget)
    assert max(exact) <= 1000
    assert np.sum(gaps <= 1.02) >= 93
    wide = Local(screen=64, starts=8, width=None, exchange=True)
    both = [one + other for one, other in zip(exact, relaxed, strict=True)]
    for rival in (wide, Random()):
        for spent in (budget, both):
            others, _, _ = close(free, lambda shape, rival=rival: rival, shapes, spent)
            assert np.sum(others <= 1.02) < np.sum(gaps <= 1.02)
            assert others.mean() > gaps.mean()
