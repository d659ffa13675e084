"""Warms in programs: they change no value, and what cannot be warmed is refused with the reason."""

from typing import Any

import numpy as np
import pytest

import pyptox as px
from pyptox import chip, kernels
from pyptox import program as pp

SIZES = {"x": px.spec((16, 256), "bf16"), "w": px.spec((2, 256, 256), "bf16"), "n": px.spec((4,), "int32")}


def stack(*, warm: bool):
    def layers(x, w, n):
        del n
        y = pp.submit(kernels.matmul, x, w[0])
        if warm:
            pp.warm(w[1], deps=[y])
        return pp.submit(kernels.matmul, pp.submit(kernels.matmul, y, w[0]), w[1])

    return pp.program(layers, sizes=lambda: SIZES)


def refused(body, *, match: str) -> None:
    def layers(x, w, n):
        y = pp.submit(kernels.matmul, x, w[0])
        body(x, w, n, y)
        return y

    with pytest.raises(px.PyptoxError, match=match):
        pp.graph(pp.program(layers, sizes=lambda: SIZES))


def test_a_warm_changes_no_value():
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    x, w = (jnp.asarray(random.normal(size=SIZES[name].shape), jnp.bfloat16) for name in "xw")
    given = x, w, np.zeros(4, np.int32)
    for reading in (pp.run, pp.reference):
        plain, warmed = (np.asarray(reading(stack(warm=warm), *given)) for warm in (False, True))
        assert plain.tobytes() == warmed.tobytes()


def test_a_warm_waits_for_its_anchor_and_nothing_waits_for_it():
    graph = pp.graph(stack(warm=True))
    (warm,) = [task for task in graph.tasks if task.warms]
    assert (warm.shape, warm.blocks, warm.args, graph.waits()) == ("AIV", 1, (), [[], [0], [0], [2]])


def test_a_program_with_a_warm_is_simulated_with_its_bytes():
    timeline = chip.simulate(pp.graph(stack(warm=True)))
    (landing,) = timeline.landings
    assert (landing.bytes, landing.user, timeline.workload.names[landing.warm]) == (2 * 256 * 256, 3, "t1 warm")
    assert sum(timeline.attribution().values()) == pytest.approx(timeline.makespan_us, abs=1e-6)
    assert "warms:" in str(chip.explain(timeline))


def test_what_cannot_be_warmed_is_refused_with_the_reason():
    refused(lambda x, w, n, y: pp.warm(y, deps=[y]), match="made by task t0")
    refused(lambda x, w, n, y: pp.warm(w[:, :, :128]), match="without gaps")
    chosen: Any = px.control([3])
    refused(lambda x, w, n, y: pp.warm(chosen), match="chosen by data")
    refused(lambda x, w, n, y: pp.warm(), match="got none")
    refused(lambda x, w, n, y: pp.warm(w, context=9), match="`context` must be 0 to 3")
    refused(lambda x, w, n, y: pp.warm(w, deps=[n]), match="`deps` expects tasks")
    half: Any = 0.5
    refused(lambda x, w, n, y: pp.warm(w, context=half), match="`context` must be 0 to 3, an integer; got 0.5")
    number: Any = 7
    refused(lambda x, w, n, y: pp.warm(w, name=number), match="`name` must be a text")
    refused(lambda x, w, n, y: pp.warm(w[0], w[0]), match="each region once")
    refused(lambda x, w, n, y: pp.warm(w[1], w), match="each region once")


def test_an_index_that_is_data_is_refused_wherever_it_is_used():
    for index in (lambda n: n, lambda n: (0, n), lambda n: slice(n, None), lambda n: slice(0, n[0])):
        refused(
            lambda x, w, n, y, index=index: pp.warm(w[index(n)]), match="by data cannot be a view, and cannot be warm"
        )
        refused(lambda x, w, n, y, index=index: pp.submit(kernels.matmul, x, w[index(n)]), match="got `n`, a tensor")
    refused(lambda x, w, n, y: w[0.5], match="must be integers and slices, known when the program is built; got float")
    refused(lambda x, w, n, y: w["a":], match="must be integers and slices")


def test_whole_rows_may_be_warmed():
    def layers(x, w, n):
        pp.warm(w[1, 16:32], w[0], n)
        return pp.submit(kernels.matmul, x, w[0])

    task = pp.graph(pp.program(layers, sizes=lambda: SIZES)).tasks[0]
    assert [tensor.shape for tensor in task.warms] == [(16, 256), (256, 256), (4,)]
