"""Parameters, spaces and constraints."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyptox as px
from autotune import (
    AbstractParameter,
    Boolean,
    Choice,
    Config,
    EmptySpaceError,
    Integer,
    Multiple,
    PowerOfTwo,
    Space,
    default_space,
)
from benchmarks.problems import problems

PARAMETERS = [
    PowerOfTwo(16, 256),
    PowerOfTwo(1, 1),
    Multiple(16, 512, 16, default=64),
    Multiple(5, 100, 7),
    Integer(-3, 4),
    Integer(2, 2),
    Choice("mnk", "nmk", "kmn"),
    Choice(1, None, "both"),
    Choice(4, 2, 8, default=2),
    Boolean(),
]
RELAXABLE = [parameter for parameter in PARAMETERS if parameter.relaxable]


def name(parameter: AbstractParameter) -> str:
    return str(parameter)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=name)
def test_parameter_is_consistent(parameter: AbstractParameter) -> None:
    values = parameter.values
    assert len(values) == parameter.cardinality == len(set(values.tolist()))
    assert parameter.default in values.tolist()
    np.testing.assert_array_equal(parameter.digits(values), np.arange(len(values)))
    assert parameter.digits(np.array([-99]))[0] == -1
    assert parameter.digits("absent") == -1
    with pytest.raises(ValueError, match="read-only"):
        values[0] = values[0]
    assert hash(parameter) == hash(parameter)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=name)
def test_neighbours_are_symmetric_and_connect_all_values(parameter: AbstractParameter) -> None:
    around = {value: parameter.neighbours(value) for value in parameter.values.tolist()}
    for value, others in around.items():
        assert value not in others
        assert all(value in around[other] for other in others)
    reached = {parameter.default}
    for _ in around:
        reached |= {other for value in reached for other in around[value]}
    assert reached == set(around)


@pytest.mark.parametrize("parameter", RELAXABLE, ids=name)
@given(fraction=st.floats(-0.2, 1.2))
def test_snap_encloses_and_is_exact_at_legal_values(parameter: AbstractParameter, fraction: float) -> None:
    low, high = float(parameter.values[0]), float(parameter.values[-1])
    x = low + fraction * (high - low)
    below, above = (int(side) for side in parameter.snap(x))
    clipped = min(max(x, low), high)
    assert below <= clipped + 1e-3
    assert above >= clipped - 1e-3
    assert abs(int(parameter.digits(above)) - int(parameter.digits(below))) <= 1
    float32 = parameter.decode(np.asarray(parameter.encode(parameter.values), np.float32))
    for side in parameter.snap(float32):
        np.testing.assert_array_equal(side, parameter.values)


@pytest.mark.parametrize("parameter", [p for p in PARAMETERS if not p.relaxable], ids=name)
def test_choices_have_no_relaxation(parameter: AbstractParameter) -> None:
    for attempt in (parameter.encode, parameter.decode, parameter.snap):
        with pytest.raises(TypeError, match="`"):
            attempt(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerOfTwo(0, 8), "`low` of PowerOfTwo must be positive, got 0"),
        (lambda: PowerOfTwo(5, 7), "`low` and `high`"),
        (lambda: Multiple(1, 15, 16), "`low` and `high`"),
        (lambda: Multiple(16, 64, 0), "`step`"),
        (lambda: Multiple(16, 64, 16, default=40), "`default`"),
        (lambda: Integer(3, 2), "`low` and `high`"),
        (lambda: Choice(), "`values`"),
        (lambda: Choice("a", "a"), "`values`"),
        (lambda: Choice("a", default="b"), "`default`"),
        (lambda: Integer(0, 3).neighbours(7), "`value` must be one of"),
        (lambda: Space(), "`parameters`"),
        (lambda: Space(**{f"p{i}": Integer(0, 1023) for i in range(7)}), "2\\^62"),
    ],
)
def test_bad_parameters_say_why(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def small() -> Space:
    space = Space(m=PowerOfTwo(16, 128), k=Multiple(16, 64, 16), order=Choice("mn", "nm"), deep=Boolean())
    space = space.where("fits", lambda at: at["m"] * at["k"] <= 2048)
    return space.where("deep_needs_k", lambda at: ~at["deep"] | (at["k"] >= 32))


def test_enumerate_equals_a_plain_loop() -> None:
    space = small()
    expected = [
        (m, k, order, deep)
        for m, k, order, deep in itertools.product(*[p.values.tolist() for p in space.parameters.values()])
        if m * k <= 2048 and (not deep or k >= 32)
    ]
    points = space.enumerate()
    assert list(zip(*[points[key].tolist() for key in ("m", "k", "order", "deep")], strict=True)) == expected
    parts = list(space.enumerate(chunk=7))
    for key, column in points.items():
        np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), column)
        assert column.dtype == space.parameters[key].values.dtype


def test_rejections_count_under_the_first_failed_constraint() -> None:
    space = small()
    grid = space.at(np.arange(space.size))
    mask, counts = space.legal(grid)
    fits = grid["m"] * grid["k"] <= 2048
    deep = ~grid["deep"] | (grid["k"] >= 32)
    assert counts == {"fits": (~fits).sum(), "deep_needs_k": (fits & ~deep).sum()}
    np.testing.assert_array_equal(mask, fits & deep)
    census = space.census()
    assert (census.size, census.legal, census.rejected) == (64, mask.sum(), counts)
    assert "`fits` removed" in str(census)
    off = {**{key: column[:3].copy() for key, column in grid.items()}, "m": np.array([16, 17, 16])}
    mask, counts = space.legal(off)
    assert counts["parameters"] == 1
    assert not mask[1]


@given(st.lists(st.integers(0, 63), max_size=20))
def test_index_points_and_configs_round_trip(positions: list[int]) -> None:
    space, index = small(), np.array(positions, np.int64)
    points = space.at(index)
    np.testing.assert_array_equal(space.point_index(points), index)
    configs = space.configs(points)
    again = space.points(configs)
    np.testing.assert_array_equal(space.point_index(again), index)
    assert [Config.from_json(config.to_json()) for config in configs] == configs


def test_default_and_membership() -> None:
    space = small()
    assert space.default == Config(m=16, k=16, order="mn", deep=False)
    assert space.default in space
    assert Config(m=128, k=64, order="mn", deep=False) not in space
    assert Config(m=17, k=64, order="mn", deep=False) not in space
    assert Config(m=16) not in space


def test_empty_space_names_the_last_constraint() -> None:
    space = small().where("impossible", lambda at: at["m"] > 4096).where("never_asked", lambda at: at["m"] > 0)
    for attempt in (
        space.enumerate,
        lambda: list(space.enumerate(chunk=5)),
        lambda: space.sample(np.random.default_rng(0), 3),
    ):
        with pytest.raises(EmptySpaceError, match=r"got 64 points, of which .*`impossible` removed") as caught:
            attempt()
        assert caught.value.constraint == "impossible"
        assert caught.value.rejected["impossible"] == small().census().legal
        assert caught.value.rejected["never_asked"] == 0


def test_where_needs_a_new_name_and_a_boolean_each() -> None:
    def fits_l1(at):
        return at["m"] <= 64

    space = Space(m=PowerOfTwo(16, 128))
    assert [constraint.name for constraint in space.where(fits_l1).constraints] == ["fits_l1"]
    assert space.constraints == ()
    with pytest.raises(TypeError, match="`name`"):
        space.where(lambda at: at["m"] <= 64)
    with pytest.raises(ValueError, match="`name` must be new"):
        space.where(fits_l1).where(fits_l1)
    with pytest.raises(TypeError, match="`sizes` must return one boolean"):
        space.where("sizes", lambda at: at["m"]).enumerate()
    with pytest.raises(TypeError, match="must be a parameter"):
        Space(m=16)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`points` must hold exactly `m`"):
        space.point_index({"n": np.array([16])})


@pytest.mark.parametrize("spread", [False, True])
def test_samples_are_legal_distinct_and_seeded(spread: bool) -> None:
    space = small()
    legal = space.census().legal
    for n in (1, 5, legal, 10 * legal):
        index = space.sample_index(np.random.default_rng(3), n, spread=spread)
        assert len(index) == len(np.unique(index)) == min(n, legal)
        assert space.screen(index)[0].all()
        np.testing.assert_array_equal(index, space.sample_index(np.random.default_rng(3), n, spread=spread))


def test_sample_finds_rare_points_of_a_large_space() -> None:
    space = Space(a=Integer(0, 999), b=Integer(0, 999)).where("rare", lambda at: at["a"] * 1000 + at["b"] == 777)
    assert space.sample(np.random.default_rng(0), 4) == {"a": [0], "b": [777]}


def best_seconds(action, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def test_enumeration_is_fast() -> None:
    tiles = {"m": Multiple(16, 512, 16), "n": Multiple(16, 512, 16)}
    hundred_thousand = Space(**tiles, k=Multiple(16, 400, 16), stages=Integer(1, 4))
    million = Space(**tiles, k=Multiple(16, 512, 16), stages=Integer(1, 4), order=Choice(*"abcdefgh"))
    for space, limit in ((hundred_thousand, 0.010), (million, 0.100)):
        space = space.where("acc", lambda at: at["m"] * at["n"] <= 32768)
        space = space.where("left", lambda at: at["m"] * at["k"] * at["stages"] <= 32768)
        assert space.size >= limit * 1e7
        # a shared machine may run at half its speed: the limits are for a quiet one
        assert best_seconds(space.enumerate) < 3 * limit


TILED = [(kernel, specs) for kernel, specs in problems() if kernel.tile]


@pytest.mark.parametrize(("kernel", "specs"), TILED, ids=lambda value: getattr(value, "name", None))
def test_the_default_space_holds_the_default_tile(kernel, specs) -> None:
    space, default = default_space(kernel, specs, px.hardware.a2a3()), kernel.configuration({})
    for name in kernel.tile:
        parameter = space.parameters[name]
        assert default[name] in parameter.values or default[name] > max(parameter.values)  # beyond the axis


def test_whole_rows_that_fit_by_their_default_alone_are_tuned() -> None:
    norm = px.kernels.rms_norm
    specs = norm.specs(px.spec((64, 16384), "bf16"), px.spec((16384,), "fp32"))
    assert 8 in default_space(norm, specs, px.hardware.a2a3()).parameters["m"].values
