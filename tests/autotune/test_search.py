"""What every search method promises."""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    AbstractSearch,
    Batch,
    Boolean,
    Choice,
    Config,
    EmptySpaceError,
    Exhaustive,
    Funnel,
    Gradient,
    Integer,
    Local,
    Multiple,
    PowerOfTwo,
    Random,
    Space,
    minimise,
)


def space() -> Space:
    free = Space(
        m=Multiple(16, 256, 16),
        k=PowerOfTwo(16, 256),
        stages=Integer(1, 4),
        order=Choice("mn", "nm"),
        deep=Boolean(),
    )
    return free.where("fits", lambda at: at["m"] * at["k"] * at["stages"] <= 32768)


def score(at):
    """A bowl in log m and log k with a preference for three stages, "nm" and deep."""
    bowl = np.log2(at["m"] / 96) ** 2 + np.log2(at["k"] / 64) ** 2
    return 1 + bowl + np.abs(at["stages"] - 3) + (at["order"] == "mn") * 0.3 + ~at["deep"] * 0.2


@jax.jit
def value_and_grad(at):
    m, k = jnp.log2(at["m"] / 96), jnp.log2(at["k"] / 64)
    values = 1 + m**2 + k**2 + jnp.abs(at["stages"] - 3) + (1 - at["order"]) * 0.3 + (1 - at["deep"]) * 0.2
    grads = {"m": 2 * m / at["m"] / jnp.log(2.0), "k": 2 * k / at["k"] / jnp.log(2.0)}
    grads["stages"] = jnp.sign(at["stages"] - 3)
    return values, {**grads, "order": jnp.zeros_like(m), "deep": jnp.zeros_like(m)}


BEST = Config(m=96, k=64, stages=3, order="nm", deep=True)
SEARCHES = [
    Exhaustive(),
    Exhaustive(chunk=50),
    Random(),
    Local(),
    Local(width=None, starts=4, exchange=True),
    Local(seeds=(Config(m=32, k=32, stages=1, order="mn", deep=False),)),
    Funnel(),
    Funnel(baseline=Config(m=256, k=32, stages=1, order="nm", deep=False)),
    Gradient(value_and_grad),
    Gradient(value_and_grad, screen=16, starts=4, scored=32),
]
each_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: repr(search)[:60])


class Counted:
    """A score that remembers every point it was asked for."""

    def __init__(self):
        self.index = []

    def __call__(self, at):
        assert space().legal(at)[0].all()
        self.index += space().point_index(at).tolist()
        return score(at)


@each_search
@pytest.mark.parametrize("budget", [1, 7, 60, 200])
def test_budget_is_kept_and_evaluations_counted(search: AbstractSearch, budget: int) -> None:
    counted = Counted()
    found = minimise(counted, space(), search, evaluations=budget, seed=1)
    assert len(counted.index) == len(set(counted.index)) == found.evaluations == len(found.curve)
    assert found.evaluations <= budget
    assert isinstance(search, Funnel) or found.evaluations == budget
    assert found.value == found.curve[-1] == found.curve.min()
    assert score(space().points([found.config]))[0] == found.value


@each_search
def test_same_seed_same_points(search: AbstractSearch) -> None:
    def points(seed: int, chunk: int) -> list[int]:
        run = search.start(space(), seed=seed, evaluations=150)
        order = []
        while not run.done:
            at = run.ask(chunk)
            order += space().point_index(at).tolist()
            run.tell(at, score(at))
        assert run.history[0].tolist() == order
        return order

    assert points(5, 1) == points(5, 1000) == points(5, 7)
    assert isinstance(search, Exhaustive | Funnel) or points(5, 7) != points(6, 7)


@each_search
def test_values_may_come_back_in_any_order(search: AbstractSearch) -> None:
    rng = np.random.default_rng(0)
    straight = minimise(score, space(), search, evaluations=120)
    run = search.start(space(), evaluations=120)
    out = np.empty(0, np.int64)
    while not run.done:
        out = rng.permutation(np.concatenate([out, run.ask_index(5)]))
        run.tell_index(out[:3], score(space().at(out[:3])))
        out = out[3:]
    best = run.best()
    assert best is not None
    assert (best.config, best.value) == (straight.config, straight.value)
    assert run.evaluations == straight.evaluations


@each_search
def test_resuming_equals_an_uninterrupted_run(search: AbstractSearch) -> None:
    whole = search.start(space(), evaluations=120)
    while not whole.done:
        index = whole.ask_index(10)
        whole.tell_index(index, score(space().at(index)))
    index, values = whole.history
    resumed = search.start(space(), evaluations=120)
    resumed.tell_index(index[:45], values[:45])
    asked = []
    while not resumed.done:
        asked += resumed.ask_index(1).tolist()
        resumed.tell_index(np.array(asked[-1:]), score(space().at(np.array(asked[-1:]))))
    assert sorted(asked) == sorted(index[45:].tolist())
    assert resumed.best() == whole.best()


@each_search
def test_failures_never_win_and_never_stop_a_search(search: AbstractSearch) -> None:
    def failing(at):
        return np.where(at["m"] % 32 == 0, np.nan, score(at))

    found = minimise(failing, space(), search, evaluations=200)
    value = found.config["m"]
    assert isinstance(value, int)
    assert value % 32 != 0
    with pytest.raises(ValueError, match="`score` must be finite"):
        minimise(lambda at: np.full(len(at["m"]), np.inf), space(), search, evaluations=50)
    with pytest.raises(EmptySpaceError, match="`never`"):
        minimise(score, space().where("never", lambda at: at["m"] < 0), search, evaluations=50)


def test_every_method_but_random_finds_the_bottom_of_a_bowl() -> None:
    for search in SEARCHES:
        found = minimise(score, space(), search, evaluations=None if isinstance(search, Exhaustive) else 300)
        assert isinstance(search, Random) or found.config == BEST, search


def test_endless_methods_stop_when_the_space_is_used_up() -> None:
    tiny = Space(x=Integer(0, 3), flag=Boolean()).where("odd", lambda at: (at["x"] % 2 == 1) | at["flag"])
    for search in (Random(), Local(), Exhaustive()):
        assert minimise(lambda at: at["x"] * 1.0, tiny, search).evaluations == 6


def test_exhaustive_passes_long_illegal_stretches() -> None:
    late = Space(x=Integer(0, 10**5)).where("late", lambda at: at["x"] > 99_990)
    assert minimise(lambda at: at["x"], late, Exhaustive(chunk=8)).evaluations == 10


def test_the_simplest_wins_within_the_margin() -> None:
    flat = Space(m=Multiple(16, 256, 16), stages=Integer(1, 4, default=2))

    def nearly_flat(at):
        return 100.0 - at["m"] / 256 - at["stages"] / 8

    assert minimise(nearly_flat, flat, Exhaustive()).config == Config(m=256, stages=4)
    assert minimise(nearly_flat, flat, Exhaustive(), margin=0.02).config == Config(m=16, stages=2)


def test_gradient_needs_something_to_relax_and_counts_its_gradients() -> None:
    with pytest.raises(ValueError, match="`space` must have a parameter with a continuous relaxation"):
        minimise(lambda at: at["x"] == "a", Space(x=Choice("a", "b")), Gradient(value_and_grad))
    found = minimise(score, space(), Gradient(value_and_grad, screen=16, starts=4, steps=10))
    assert found.relaxed == 40
    assert found.to_dict()["relaxed"] == 40
    assert "40 gradients" in str(found)


def test_run_refuses_points_off_the_grid() -> None:
    run = Random().start(space())
    points = run.ask(2)
    with pytest.raises(ValueError, match="`points` must lie on the grid"):
        run.tell({**points, "m": points["m"] + 1}, [1.0, 1.0])
    with pytest.raises(ValueError, match="`values` must be one for each"):
        run.tell(points, [1.0])
    with pytest.raises(ValueError, match="`evaluations`"):
        Random().start(space(), evaluations=0)
    assert len(run.ask(0)["m"]) == 0


def test_a_new_method_is_one_generator() -> None:
    class Corners(AbstractSearch):
        def proposals(self, space, rng, evaluations):
            values = yield Batch(np.array([0, space.size - 1, -1]))
            assert np.isinf(values[2])

    corners = Space(x=Integer(0, 9))
    assert minimise(lambda at: -at["x"], corners, Corners()).config == Config(x=9)


def test_importing_autotune_leaves_optax_alone() -> None:
    script = "import sys, autotune; assert 'optax' not in sys.modules"
    root = pathlib.Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)
