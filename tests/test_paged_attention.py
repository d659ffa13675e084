"""Paged attention against an independent softmax over gathered keys, and its cost against single blocks."""

import heapq
import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyptox as px
from pyptox import lang as pl
from pyptox.cost import Options, explain, predict, verify
from pyptox.cost._machine import closed_form, full_cycles
from pyptox.cost._nest import options_for
from pyptox.cost._verify import plain_hardware, plain_nest
from pyptox.lang._run import _compiled
from pyptox.trace import trace

KERNEL = px.kernels.paged_attention
CHIP = plain_hardware(px.hardware.a2a3())
PAGE, HEADS, GROUP, SIZE = 32, 2, 5, 48
LENGTHS = (0, 1, 32, 33, 96, 64, 50)
"""No key, one key, whole pages, one key on a new page, all pages, and a ragged one."""


def _gathered(cache, pages):
    """The keys or values of one request, ``(heads, keys, size)`` in float64."""
    cache = np.asarray(cache, np.float64)[pages]
    return cache.transpose(1, 0, 2, 3).reshape(cache.shape[1], -1, cache.shape[3])


def _dense(q, k, v, table, lengths):
    """Softmax over the gathered keys of each request, float64."""
    out = np.zeros(q.shape)
    for r, length in enumerate(lengths):
        if length:
            keys, values = (_gathered(cache, table[r])[:, :length] for cache in (k, v))
            scores = np.einsum("hgd,hkd->hgk", np.asarray(q, np.float64)[r], keys) / np.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[r] = np.einsum("hgk,hkd->hgd", weights / weights.sum(-1, keepdims=True), values)
    return out


def _inputs(seed, lengths=LENGTHS, dtype=jnp.bfloat16, scale=4.0, group=GROUP):
    rng = np.random.default_rng(seed)
    columns = -(-max(*lengths, 1) // PAGE)
    pages = columns * len(lengths) + 3
    q = (scale * rng.standard_normal((len(lengths), HEADS, group, SIZE))).astype(dtype)
    k, v = (rng.standard_normal((pages, HEADS, PAGE, SIZE)).astype(dtype) for _ in range(2))
    table = rng.permutation(pages)[: columns * len(lengths)].reshape(len(lengths), columns).astype(np.int32)
    return q, k, v, table


@pytest.mark.parametrize("preload", KERNEL.parameters[-1].options)
@pytest.mark.parametrize(("dtype", "atol"), [(jnp.bfloat16, 2.5e-2), (jnp.float16, 3e-3), (jnp.float32, 1e-5)])
def test_values(preload, dtype, atol):
    q, k, v, table = _inputs(0, dtype=dtype)
    expected = _dense(q, k, v, table, LENGTHS)
    given = (q, k, v, table, px.control(LENGTHS))
    # weights and result are rounded to the dtype once each
    np.testing.assert_allclose(np.asarray(px.run(KERNEL, *given, preload=preload), np.float64), expected, atol=atol)
    reference = px.reference(KERNEL, *given, preload=preload)
    np.testing.assert_allclose(reference, expected, rtol=1e-12, atol=1e-12)
    assert not reference[0].any()


def test_values_equal_those_of_jax():
    q, k, v, table = _inputs(1, dtype=jnp.float32, scale=1.0)
    dense = [jnp.asarray(np.stack([_gathered(c, pages) for pages in table]), jnp.float32) for c in (k, v)]
    keys, values = (x.transpose(0, 2, 1, 3) for x in dense)  # (requests, keys, heads, size)
    queries = q.reshape(len(LENGTHS), 1, HEADS * GROUP, SIZE)
    expected = jax.nn.dot_product_attention(
        jnp.asarray(queries), keys, values, key_value_seq_lengths=jnp.asarray(LENGTHS, jnp.int32)
    ).reshape(q.shape)
    actual = px.run(KERNEL, q, k, v, table, px.control(LENGTHS))
    np.testing.assert_allclose(np.asarray(actual)[1:], np.asarray(expected)[1:], atol=1e-5)


def test_ties_outliers_and_shared_pages():
    q, k, v, table = _inputs(2, dtype=jnp.float32)
    table[3:] = table[0]  # pages may be shared
    k[:, 0] = 0.5  # all keys of a head alike
    q[:, 1, 2] *= 300.0
    expected = _dense(q, k, v, table, LENGTHS)
    reference = px.reference(KERNEL, q, k, v, table, px.control(LENGTHS))
    np.testing.assert_allclose(reference, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(px.run(KERNEL, q, k, v, table, px.control(LENGTHS))), expected, atol=1e-3)


@pytest.mark.parametrize("group", [1, 16, 17])
def test_any_number_of_query_heads(group):
    q, k, v, table = _inputs(3, group=group)
    expected = _dense(q, k, v, table, LENGTHS)
    np.testing.assert_allclose(px.reference(KERNEL, q, k, v, table, px.control(LENGTHS)), expected, atol=1e-12)


def test_what_lies_beyond_the_keys_does_not_matter_and_nothing_is_compiled_again():
    q, k, v, table = _inputs(4, (40, 7, 96))
    px.run(KERNEL, q, k, v, table, px.control((40, 7, 96)))
    compiled = _compiled.cache_info().misses
    rng = np.random.default_rng(5)
    for _ in range(5):
        lengths = rng.integers(0, 97, 3).tolist()
        changed, pages = np.array(v), np.array(table)
        for r, length in enumerate(lengths):
            pages[r, -(-length // PAGE) :] = -1
            if length % PAGE:
                changed[table[r, length // PAGE], :, length % PAGE :] = np.nan
        before = px.run(KERNEL, q, k, v, table, px.control(lengths))
        after = px.run(KERNEL, q, k, changed, pages, px.control(lengths))
        np.testing.assert_array_equal(np.asarray(before, np.float32), np.asarray(after, np.float32))
    assert _compiled.cache_info().misses == compiled


def _specs(lengths, page=128, heads=8, group=5, size=128, keys=4096):
    requests, columns = len(lengths), keys // page
    cache = px.spec((requests * columns, heads, page, size), "bf16")
    table = px.spec((requests, columns), "int32")
    return KERNEL.specs(px.spec((requests, heads, group, size), "bf16"), cache, cache, table, px.control(lengths))


def _cost(specs, warm=4, **values):
    config = KERNEL.configuration(values)
    control = {name: np.asarray(spec.values, float) for name, spec in specs.items() if spec.values is not None}
    shapes = {name: spec.shape for name, spec in specs.items()}
    return predict(KERNEL, specs, shapes, config, CHIP, options_for(KERNEL, Options(warm=warm), config), control)


def test_occupancy_equals_a_hand_count():
    used = _cost(_specs([4096] * 16), stages=2, preload=1).occupancy
    page, query, weights = 128 * 128 * 2, 16 * 128 * 2, 16 * 128 * 2
    # two slots in the loop over pages for keys, values and weights; the query stays
    assert used["Mat"] == query + 2 * (2 * page + weights)
    assert used["Right"] == 2 * page  # one step of the reduction, double buffered
    assert used["Left"] == 2 * query


@pytest.mark.parametrize("preload", [0, 1, 2])
@pytest.mark.parametrize("page", [16, 128, 256])
def test_closed_form_equals_the_full_simulation(preload, page):
    for lengths in ([0], [1, 17], [page + 1, 1], [2 * page, 5], [1000, 5], [4096, 4000]):
        for stages in (1, 2, 3):
            values = {"preload": preload, "stages": stages}
            options = options_for(KERNEL, Options(warm=4), KERNEL.configuration(values))
            nest = plain_nest(KERNEL, _specs(lengths, page), values, CHIP, options)
            assert closed_form(nest.walk, 4) == pytest.approx(full_cycles(nest.walk), rel=0.01), (lengths, stages)


def _one_after_another(cycles, blocks_each, cores):
    """When the last of the cores is done, each of them taking the next block when it is free."""
    free = [0.0] * cores
    for block in cycles:
        for _ in range(blocks_each):
            heapq.heapreplace(free, free[0] + block)
    return max(free)


@pytest.mark.parametrize("requests", [3, 16, 64])
def test_requests_of_differing_lengths_are_shared_out(requests):
    rng = np.random.default_rng(requests)
    for lengths in (rng.integers(1, 4097, requests), rng.integers(1, 4097, requests) // 16, [4096] * requests):
        lengths = [int(length) for length in lengths]
        cost = _cost(_specs(lengths))
        # a batch of equal lengths has blocks of the same kind, as many of them active
        single = [_cost(_specs([length] * requests)) for length in lengths]
        blocks = [one.cycles / one.waves for one in single]
        cores = min(24, 8 * requests)
        expected = _one_after_another(blocks, 8, cores)
        assert cost.cycles == pytest.approx(expected, rel=1e-9), lengths
        assert cost.cycles >= max(blocks) * (1 - 1e-9)
        assert cost.moved["read"] == pytest.approx(sum(one.moved["read"] for one in single) / requests)
        assert cost.bound_us <= cost.time_us


def test_longer_requests_and_smaller_pages_take_longer():
    times = [_cost(_specs([length] * 16)).time_us for length in (0, 1, 512, 1024, 4096)]
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert times[-1] > 3.5 * times[-2] - 2.5 * times[0]
    assert _cost(_specs([4096] * 16, 16)).time_us > 1.3 * _cost(_specs([4096] * 16, 128)).time_us
    # the longest request bounds
    assert _cost(_specs([4096] + [16] * 15)).time_us > 0.95 * _cost(_specs([4096, 16, 16])).time_us


def test_all_keys_are_read_once():
    lengths = [4096, 100, 0, 1300]
    cost = _cost(_specs(lengths))
    keys = 2 * sum(lengths) * 8 * 128 * 2
    assert cost.useful["read"] == keys + 4 * 8 * 5 * 128 * 2
    assert cost.moved["hbm"] == pytest.approx(cost.moved["read"])
    assert cost.bound_us >= CHIP.times.launch_us + keys * CHIP.times.hbm_us


def test_batched_equals_plain():
    specs = _specs([4096, 1, 0, 700, 2048, 129])
    for preload in (0, 1):
        options = Options(choices=(("preload", preload),))
        batch = px.cost.evaluate(KERNEL, specs, {"stages": [1, 2, 3]}, CHIP, options)
        for n, stages in enumerate((1, 2, 3)):
            one = _cost(specs, warm=2, preload=preload, stages=stages)
            assert batch.time_us[n] == pytest.approx(one.time_us, rel=0.04)
            assert batch.moved["read"][n] == pytest.approx(one.moved["read"], rel=1e-5)
            assert bool(batch.legal[n]) == one.legal


def test_a_plain_prediction_is_quick():
    specs = _specs([4096, 1, 0, 700, 2048, 129, 130, 131])
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        _cost(specs)
        best = min(best, time.perf_counter() - start)
    assert best < 0.05


def test_regions_span_the_cache_and_cover_the_output():
    specs = _specs([500, 0, 128, 129], heads=2, keys=512)
    written = np.zeros(specs["out"].shape, int)
    for region in px.regions(KERNEL, specs, {"preload": 1}):
        if region.mode == "write":
            for start, size in zip(region.starts, region.sizes, strict=True):
                written[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))] += 1
        elif region.tensor in ("k", "v"):
            some = np.all(region.sizes > 0, axis=1)
            assert (region.starts[some, 0] == 0).all()
            assert (region.sizes[some, 0] == specs["k"].shape[0]).all()
            assert not some[2:4].any()  # a request without keys
    assert (written == 1).all()


def test_trace_explain_and_verify():
    specs = _specs([1000, 4, 0])
    result = trace(KERNEL, specs, {"preload": 1}, CHIP)
    assert result.closed_cycles == pytest.approx(result.cycles, rel=0.01)
    assert not result.degenerate
    assert explain(KERNEL, specs, {"preload": 1}, CHIP).time_us == pytest.approx(_cost(specs, preload=1).time_us)
    assert verify(KERNEL, specs, {"preload": 1}, CHIP).passed
    assert not verify(KERNEL, _specs([4096], page=1024), {"preload": 1}, CHIP).passed


def test_misuse_is_explained():
    q, cache = px.spec((2, 4, 5, 64), "bf16"), px.spec((9, 4, 32, 64), "bf16")
    table, lengths = px.spec((2, 3), "int32"), px.control([96, 1])
    with pytest.raises(px.KernelError, match="at most 96"):
        KERNEL.specs(q, cache, cache, table, px.control([97, 1]))
    with pytest.raises(px.KernelError, match=r"px\.control"):
        KERNEL.specs(q, cache, cache, table, px.spec((2,), "int32"))
    with pytest.raises(px.KernelError, match="key heads"):
        KERNEL.specs(q, px.spec((9, 3, 32, 64), "bf16"), px.spec((9, 3, 32, 64), "bf16"), table, lengths)
    with pytest.raises(px.KernelError, match="`table`"):
        KERNEL.specs(q, cache, cache, px.spec((3, 3), "int32"), lengths)
    with pytest.raises(px.KernelError, match="one floating dtype"):
        KERNEL.specs(q, cache, px.spec((9, 4, 32, 64), "fp16"), table, lengths)


def test_a_lookup_places_any_load():
    @px.kernel(outputs={"out": lambda x, order: px.spec((order.shape[0], x.shape[1]), x.dtype)}, tile={"n": 64})
    def picked(x: pl.Tensor, order: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i, j):
            part = pl.load(x, (pl.lookup(order, (i,)), j * tile.n), (1, tile.n), space=pl.Vec)
            pl.store(out, (i, j * tile.n), part)

        pl.grid((order.shape[0], pl.cdiv(x.shape[1], tile.n)), block)

    rng = np.random.default_rng(6)
    x, order = rng.standard_normal((9, 100)).astype(np.float32), rng.integers(0, 9, 20).astype(np.int32)
    np.testing.assert_array_equal(px.run(picked, x, order), x[order])
    np.testing.assert_array_equal(px.reference(picked, x, order), x[order])
    specs = picked.specs(px.spec(x.shape, "fp32"), px.spec(order.shape, "int32"))
    shapes = {name: spec.shape for name, spec in specs.items()}
    cost = predict(picked, specs, shapes, picked.configuration({}), CHIP, Options())
    assert cost.useful["read"] == 20 * 100 * 4
    (read,) = [region for region in px.regions(picked, specs, {}) if region.tensor == "x"]
    assert read.sizes[0].tolist() == [9, 64]

    @px.kernel(outputs={"out": lambda x: x}, tile={"n": 64})
    def wrong(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        pl.grid((1,), lambda i: pl.store(out, (0, 0), pl.load(x, (pl.lookup(x, (i, i)), 0), (1, tile.n))))

    with pytest.raises(px.KernelError, match="int32 tensor"):
        px.run(wrong, x)


def test_a_step_that_may_be_left_out_and_an_order_that_uneven_blocks_do_not_have():
    @px.kernel(outputs={"out": lambda x, lengths: x}, tile={"n": 64})
    def halved(x: pl.Tensor, lengths: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        def block(i):
            part = pl.load(x, (i, 0), (1, tile.n), space=pl.Vec)
            some = pl.minimum(pl.element(lengths, i), 5)
            pl.store(out, (i, 0), pl.when(some, lambda y: pl.multiply(y, 0.5), part))

        pl.grid((x.shape[0],), block)

    x = np.ones((3, 64), np.float32)
    values = np.asarray(px.run(halved, x, px.control([0, 1, 7])))
    assert values[:, 0].tolist() == [1.0, 0.5, 0.5]

    @px.kernel(outputs={"out": lambda x: x}, tile={"n": 64})
    def wrong(x: pl.Tensor, out: pl.Tensor, *, tile: pl.TileSizes) -> None:
        pl.grid((4, 4), lambda i, j: None, order=pl.swizzled(2), uneven=True)

    with pytest.raises(px.KernelError, match="`uneven`"):
        px.run(wrong, x)
