"""The decode program: tasks of one step for a window of rows, and for a whole batch.

A row is one token of one request. Rows of one request may be in one window, which is how a prompt is read: every new
key is in the cache before attention, and each row attends to as many keys as its place says.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyptox import kernels, spec
from pyptox import lang as pl
from pyptox import program as pp
from pyptox.program import Program, Tensor, submit

from ._config import PAGE, Config, ModelError
from ._variant import Projection, Variant
from ._weights import NORMS, PROJECTIONS, checked_dtype, layer_shapes

SPLIT = ("q", "k", "v", "o", "gate", "up", "down")

STAGES = {"q": ("q",), "kv": ("k", "v"), "attention": ("o",), "mlp": ("gate", "up", "down")}
"""Which products are seeded by one task where seeds are funnelled; those behind attention wait for it alone."""

BEHIND = (*STAGES["attention"], *STAGES["mlp"])


@dataclass(frozen=True)
class Rows:
    """Where the rows of a window are.

    Attributes:
        turns: cosines and sines of each row, side by side.
        slots: row of the cache, seen as (pages · key heads · page, size), of every row and key head; -1 for none.
        places: page and row of the page of each row.
        table: pages of each row's request.
        lengths: keys of each row, its own included (control); 0 for a row that is not there.
        ones: 1 for each row.
    """

    turns: Tensor
    slots: Tensor
    places: Tensor
    table: Tensor
    lengths: Tensor
    ones: Tensor


SEED_BYTES = 1 << 16
"""Of a tile that is cleared: with its slots it fits Vec whatever the other vector kernels take."""

ROW_ARGUMENTS = ("slots", "places", "table", "lengths", "ones")


@dataclass(frozen=True)
class Normed:
    """The input of projections: ``x``, int8 with ``scale`` in a8w8; rows of the product still take ``inverse``."""

    x: Tensor
    scale: Tensor | None
    inverse: Tensor


def _slices(count: int, step: int) -> list[slice]:
    """Parts of ``step``, all at once where it is 0."""
    return [slice(at, min(at + step, count)) for at in range(0, count, step)] if step else [slice(0, count)]


class Step:
    """Builds the tasks of one variant."""

    def __init__(self, config: Config, variant: Variant, dtype: str):
        self.config, self.variant, self.dtype = config, variant, dtype
        self.stored = "fp32" if dtype == "fp32" else "bf16"
        self.wide_input = dtype != "bf16"  # a8w8 quantises what is not rounded yet
        self.input = "fp32" if self.wide_input else "bf16"

    @property
    def ahead(self) -> bool:
        """Whether the end of a layer multiplies by the gain of the norm that follows."""
        return self.variant.deferred and not self.adds_in_place("down")

    def adds_in_place(self, name: str) -> bool:
        """Whether a product adds to the residual stream in one mixed kernel."""
        plan = getattr(self.variant, name)
        return self.variant.mixed and self.dtype != "a8w8" and len(plan.parts(self.config.hidden)) == 1

    # --------------------------------------------------------------------------------------------- small pieces
    def tile(self, columns: int) -> dict[str, int]:
        """Of a vector kernel whose block has all rows of a window."""
        v = self.variant
        return {"m": -(-v.rows // v.row_steps), "n": columns, "steps": v.row_steps, "stages": v.stages}

    @property
    def chunk(self) -> dict[str, int]:
        """Of a kernel that walks over the columns of a row, or over those of a table."""
        v = self.variant
        return {"m": v.rows, "n": min(v.columns, 256), "stages": v.stages}

    def submit(self, kernel: pl.Kernel, *inputs: Any, name: str, **values: Any) -> Any:
        return submit(kernel, *inputs, allow_early_resolve=self.variant.early.of(name), name=name, **values)

    def columns(
        self, kernel: pl.Kernel, *inputs: Tensor, dtype: str, name: str, each: int = 0, extra: str | None = None
    ) -> Any:
        """An elementwise kernel over matrices, vectors and columns of one value a row.

        ``each`` columns are a task, all of them where it is 0; ``extra`` is the type of a second output.
        """
        v, (rows, width) = self.variant, inputs[0].shape
        tile = self.tile(min(each, v.columns) or v.columns)
        if not each or each >= width:
            return self.submit(kernel, *inputs, name=name, **tile)
        outputs = [pp.empty((rows, width), kind, name=name) for kind in (dtype, extra) if kind]
        for at in range(0, width, each):
            here = slice(at, min(at + each, width))
            parts = [x if x.shape[-1] == 1 else x[here] if len(x.shape) == 1 else x[:, here] for x in inputs]
            places = {title: out[:, here] for title, out in zip(kernel.outputs, outputs, strict=True)}
            self.submit(kernel, *parts, out=places, name=name, **tile)
        return outputs[0] if extra is None else tuple(outputs)

    def seeds(self, rows: int) -> dict[str, Tensor]:
        """Outputs that blocks add to, at zero: one task for each; with a funnel, one for each stage of the layer."""
        v = self.variant
        widths = {n: layer_shapes(self.config)[n][1] for n in SPLIT if getattr(v, n).splits > 1}
        if self.dtype == "a8w8":
            return {}
        stages = STAGES if v.funnel else {name: (name,) for name in SPLIT}
        seeded = {}
        for stage, members in stages.items():
            total = sum(widths.get(name, 0) for name in members)
            if not total:
                continue
            pool = pp.empty((rows * total,), "fp32", name=f"seeded_{stage}")
            tile = self.tile(min(4 * v.columns, SEED_BYTES // 4 // -(-v.rows // v.row_steps)))
            done = self.submit(kernels.clear, pool.reshape(rows, total), name=f"seed_{stage}", **tile)
            at = 0
            for name in members:
                size = rows * widths.get(name, 0)
                if size:
                    part = pool[at : at + size].reshape(rows, widths[name])
                    seeded[name] = Tensor(part.buffer, part.shape, part.strides, part.offset, done.task)
                    at += size
        return seeded

    # --------------------------------------------------------------------------------------------------- products
    def project(
        self, name: str, x: Normed, weights: Mapping[str, Tensor], seeds: Mapping[str, Tensor], *, behind: bool = False
    ) -> Tensor:
        """``x @ weight`` in fp32. ``behind``: another task's path orders it after its seed."""
        plan: Projection = getattr(self.variant, name)
        weight = weights[name]
        columns = weight.shape[1]
        parts = plan.parts(columns)
        tile = {"m": self.variant.rows, "n": plan.n, "k": plan.k, "stages": plan.stages}
        out = seeds.get(name)
        if out is None and len(parts) > 1:
            out = pp.empty((x.x.shape[0], columns), "fp32", name=name)
        made, deps = None, ()
        for number, (first, last) in enumerate(parts):
            here = slice(first, last)
            where = None if out is None else out[:, here]
            if plan.wave and number == 1:
                deps = (pp.dummy(deps=[x.x], name=f"{name}_wave"),)
            if x.scale is not None:
                scales = x.scale, weights[f"{name}_scale"][here]
                kernel, inputs, extra = kernels.w8a8_matmul_fp32, (x.x, weight[:, here], *scales), {}
            elif name in seeds:
                kernel, inputs, extra = kernels.matmul_split_k, (x.x, weight[:, here]), {"splits": plan.splits}
                where = pp.no_dep(where) if behind and where is not None else where
            else:
                kernel, inputs, extra = kernels.matmul_wide, (x.x, weight[:, here]), {}
            made = self.submit(kernel, *inputs, out=where, deps=deps, name=name, **tile, **extra)
        assert made is not None
        return out if out is not None else made

    def normed(self, residual: Tensor, gain: Tensor, scaled: Tensor | None, ones: Tensor) -> Normed:
        """RMSNorm as the input of projections; ``scaled`` is ``residual gain`` where it is known."""
        v, epsilon = self.variant, self.config.epsilon
        if v.deferred:
            tile = self.chunk
            inverse = self.submit(kernels.rms_reciprocal, residual, name="rms", epsilon=epsilon, **tile)
            if scaled is None:
                scaled = self.scaled(residual, gain)
            return Normed(*self.quantized(scaled), inverse)
        tile = self.chunk
        rows = self.submit(kernels.rms_norm_tiled, residual, gain, name="rms_norm", epsilon=epsilon, **tile)
        if not self.wide_input:
            rows = self.columns(kernels.convert("bf16"), rows, dtype="bf16", name="cast")
        return Normed(*self.quantized(rows), ones)

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """``x`` as the cube takes it, in a8w8 with the scale of each row."""
        if self.dtype != "a8w8":
            return x, None
        return self.submit(kernels.quantize_per_token_tiled, x, name="quantize", **self.chunk)

    # -------------------------------------------------------------------------------------------------- attention
    def attention(
        self,
        qkv: tuple[Tensor, Tensor, Tensor],
        inverse: Tensor,
        w: Mapping[str, Tensor],
        rows: Rows,
        after: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attended values (rows, heads · size), and both caches; it begins when the tasks of ``after`` are done."""
        build = {"steps": self._in_steps, "paged": self._paged, "fused": self._fused}[self.variant.attention]
        out, *caches = build(qkv, inverse, w, rows, after)
        return out.reshape(out.shape[0], -1), *caches

    def _requests(self, count: int) -> list[slice]:
        return _slices(count, self.variant.requests)

    def _fused(self, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
        c, v = self.config, self.variant
        count, half = rows.places.shape[0], c.size // 2
        q, k, value = qkv
        q = q.reshape(count, c.key_heads, c.group, c.size)
        k, value = (x.reshape(count, c.key_heads, c.size) for x in (k, value))
        out = pp.empty(q.shape, self.stored, name="attended")
        k_cache, v_cache = w["k_cache"], w["v_cache"]
        for some in self._requests(count):
            _, k_cache, v_cache = self.submit(
                kernels.decode_attention,
                *(q[some], k[some], value[some], inverse[some], w["q_norm"], w["k_norm"]),
                *(rows.turns[some, :half], rows.turns[some, half:], rows.places[some], rows.table[some]),
                *(rows.lengths[some], k_cache, v_cache),
                out={"out": out[some]},
                deps=after,
                name="attention",
                stages=v.stages,
                preload=v.pages,
                epsilon=c.epsilon,
            )
        return out, k_cache, v_cache

    def _prepared(self, qkv, inverse, w, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Queries after norm and rotation, (rows, key heads, group, size), and the caches with the new keys."""
        c, v = self.config, self.variant
        count, half = rows.places.shape[0], c.size // 2
        q = qkv[0].reshape(count, c.heads, c.size)
        k = qkv[1].reshape(count, c.key_heads, c.size)
        turned = [pp.empty(x.shape, self.stored, name=name) for x, name in ((q, "queries"), (k, "keys"))]
        for some in self._requests(count):
            turns = rows.turns[some, :half], rows.turns[some, half:]
            for x, gain, out, name in ((q, "q_norm", turned[0], "q_rope"), (k, "k_norm", turned[1], "k_rope")):
                self.submit(
                    kernels.norm_rope(self.stored),
                    *(x[some], inverse[some], w[gain], *turns),
                    out=out[some],
                    name=name,
                    stages=v.stages,
                    epsilon=c.epsilon,
                )
        value = self.columns(kernels.scale_rows(self.stored), qkv[2], inverse, dtype=self.stored, name="v_scale")
        caches = self._cached(turned[1], value, w, rows.slots)
        return turned[0].reshape(count, c.key_heads, c.group, c.size), *caches

    def _paged(self, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
        v = self.variant
        q, k_cache, v_cache = self._prepared(qkv, inverse, w, rows)
        out = pp.empty(q.shape, self.stored, name="attended")
        for some in self._requests(q.shape[0]):
            inputs = q[some], k_cache, v_cache, rows.table[some], rows.lengths[some]
            self.submit(
                kernels.paged_attention,
                *inputs,
                out=out[some],
                deps=after,
                name="attention",
                stages=v.stages,
                preload=v.pages,
            )
        return out, k_cache, v_cache

    def _in_steps(self, qkv, inverse, w, rows: Rows, after: Sequence[Tensor]):
        v = self.variant
        q, k_cache, v_cache = self._prepared(qkv, inverse, w, rows)
        out = pp.empty(q.shape, self.stored, name="attended")
        heads = _slices(self.config.key_heads, v.heads)
        for some, these in itertools.product(self._requests(q.shape[0]), heads):
            table, lengths = rows.table[some], rows.lengths[some]
            keys, values = k_cache[:, these], v_cache[:, these]
            scores = self.submit(
                kernels.paged_scores,
                *(q[some, these], keys, table, lengths),
                deps=after,
                name="scores",
                stages=v.stages,
            )
            weights = self.submit(
                kernels.softmax_lengths(self.stored), scores, lengths, name="softmax", n=PAGE, stages=v.stages
            )
            self.submit(
                kernels.paged_values,
                *(weights, values, table, lengths),
                out=out[some, these],
                name="values",
                stages=v.stages,
            )
        return out, k_cache, v_cache

    def _cached(self, k: Tensor, value: Tensor, w: Mapping[str, Tensor], slots: Tensor) -> tuple[Tensor, Tensor]:
        size, caches = self.config.size, []
        tile = {"n": size, "stages": self.variant.stages}
        for x, name in ((k, "k_cache"), (value, "v_cache")):
            cache = w[name]
            lines = cache.reshape(cache.shape[0] * cache.shape[1] * PAGE, size)
            written = self.submit(
                kernels.cache_write, x.reshape(slots.shape[0], size), slots, lines, name=f"write_{name}", **tile
            )
            caches.append(written.reshape(*cache.shape))
        return caches[0], caches[1]

    # ------------------------------------------------------------------------------------------------------- layer
    def layer(
        self, residual: Tensor, scaled: Tensor | None, w: Mapping[str, Tensor], next_norm: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Residual stream after a layer, times the gain of the next norm where that is put off, and both caches."""
        v = self.variant
        seeds = self.seeds(residual.shape[0])
        x = self.normed(residual, w["input_norm"], scaled, rows.ones)
        q, k, value = (self.project(name, x, w, seeds) for name in ("q", "k", "v"))
        behind = v.funnel
        after = [seeds[name] for name in ("o", "gate") if name in seeds and behind]
        attended, k_cache, v_cache = self.attention((q, k, value), x.inverse, w, rows, after)
        attended = Normed(*self.quantized(attended), rows.ones)
        residual, scaled = self.add("o", attended, w, seeds, residual, w["post_norm"], behind)
        x = self.normed(residual, w["post_norm"], scaled, rows.ones)
        if v.mixed and self.dtype != "a8w8":
            active = self.gated(x, w)
        else:
            gate, up = (self.project(name, x, w, seeds, behind=behind) for name in ("gate", "up"))
            kernel = kernels.swiglu_deferred(self.input)
            each = v.vector_tiles * v.gate.n
            active = self.columns(kernel, gate, up, x.inverse, dtype=self.input, name="silu", each=each)
        x = Normed(*self.quantized(active), rows.ones)
        residual, scaled = self.add("down", x, w, seeds, residual, next_norm, behind)
        return residual, scaled, k_cache, v_cache

    def gated(self, x: Normed, w: Mapping[str, Tensor]) -> Tensor:
        """Both products of the MLP and SwiGLU in one mixed kernel."""
        plan, width = self.variant.gate, self.config.intermediate
        parts = plan.parts(width)
        out = pp.empty((x.x.shape[0], width), self.stored, name="active") if len(parts) > 1 else None
        made = None
        for first, last in parts:
            here = slice(first, last)
            made = self.submit(
                kernels.matmul_swiglu(self.stored),
                *(x.x, w["gate"][:, here], w["up"][:, here], x.inverse),
                out=None if out is None else out[:, here],
                name="gate_up",
                m=self.variant.rows,
                n=plan.n,
                k=plan.k,
                stages=plan.stages,
            )
        assert made is not None
        return out if out is not None else made

    def add(
        self,
        name: str,
        x: Normed,
        w: Mapping[str, Tensor],
        seeds: Mapping[str, Tensor],
        residual: Tensor,
        gain: Tensor,
        behind: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """``residual + x @ weight``, and that times ``gain`` where the next norm is put off."""
        v, plan = self.variant, getattr(self.variant, name)
        if self.adds_in_place(name):
            tile = {"m": v.rows, "n": plan.n, "k": plan.k, "stages": plan.stages}
            return self.submit(kernels.matmul_residual, x.x, w[name], residual, name=name, **tile), None
        product = self.project(name, x, w, seeds, behind=behind)
        tasks = {"dtype": "fp32", "name": f"{name}_residual", "each": v.vector_tiles * plan.n}
        if v.deferred:
            kernel = kernels.residual_scale(self.input)
            return self.columns(kernel, residual, product, gain, extra=self.input, **tasks)
        return self.columns(kernels.residual_add, residual, product, **tasks), None

    # ----------------------------------------------------------------------------------------------- begin and end
    def embed(
        self,
        tokens: Tensor,
        positions: Tensor,
        embedding: Tensor,
        rope: Tensor,
        gain: Tensor,
        after: Iterable[Tensor] = (),
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The residual stream of new rows, their cosines and sines; the stream times the first gain if ``ahead``.

        It begins when the tasks of ``after`` are done.
        """
        tile = self.chunk
        residual = self.submit(kernels.gather_rows, embedding, tokens, name="embed", deps=after, **tile)
        if self.stored != "fp32":
            residual = self.columns(kernels.convert("fp32"), residual, dtype="fp32", name="embed_cast")
        turns = self.submit(kernels.gather_rows, rope, positions, name="turns", **tile)
        return residual, turns, self.scaled(residual, gain) if self.ahead else None

    def scaled(self, residual: Tensor, gain: Tensor) -> Tensor:
        return self.columns(kernels.scale_columns(self.input), residual, gain, dtype=self.input, name="x_gamma")

    def logits(self, residual: Tensor, scaled: Tensor | None, norm: Tensor, head: Tensor, ones: Tensor) -> Tensor:
        """The logits of every row, fp32."""
        v = self.variant
        plain = Step(self.config, v, self.stored)  # the head is not quantised
        if scaled is not None and scaled.dtype != self.stored:
            scaled = plain.columns(kernels.convert(self.stored), scaled, dtype=self.stored, name="head_cast")
        x = plain.normed(residual, norm, scaled, ones)
        plan, count = v.head, head.shape[0]
        parts = plan.parts(count)
        tile = {"m": v.rows, "n": plan.n, "k": plan.k, "stages": plan.stages}
        made = None
        out = pp.empty((residual.shape[0], count), "fp32", name="logits") if len(parts) > 1 else None
        for first, last in parts:
            where = None if out is None else out[:, first:last]
            made = self.submit(kernels.matmul_wide_nt, x.x, head[first:last], out=where, name="head", **tile)
        assert made is not None
        made = out if out is not None else made
        if not v.deferred:
            return made
        return plain.columns(kernels.scale_rows("fp32"), made, x.inverse, dtype="fp32", name="head_scale")

    def sample(self, logits: Tensor, base: Tensor) -> Tensor:
        """The first largest logit of every row, int32 (rows, 1)."""
        _, token = self.submit(kernels.argmax_shard, logits, base, name="sample", m=self.chunk["m"], n=self.chunk["n"])
        return token


# ------------------------------------------------------------------------------------------------------- the programs
def layer_arguments(config: Config, dtype: str) -> dict[str, Any]:
    """The spec of every weight of a layer."""
    stored = "fp32" if dtype == "fp32" else "bf16"
    found: dict[str, Any] = {}
    for name, shape in layer_shapes(config).items():
        if name in NORMS:
            found[name] = spec(shape, "fp32")
        elif dtype == "a8w8":
            found[name], found[f"{name}_scale"] = spec(shape, "int8"), spec(shape[1:], "fp32")
        else:
            found[name] = spec(shape, stored)
    return found


CACHES = ("k_cache", "v_cache")


@functools.lru_cache(maxsize=64)
def embed_program(config: Config, variant: Variant, dtype: str) -> Program:
    """The residual stream of new tokens, their turns, and what the first layer finds scaled."""
    step = Step(config, variant, checked_dtype(dtype))

    def embed(*tensors: Tensor) -> tuple[Tensor, ...]:
        tokens, positions, embedding, rope, gain = tensors
        return tuple(x for x in step.embed(tokens, positions, embedding, rope, gain) if x is not None)

    return Program(embed, "embed", ("tokens", "positions", "embedding", "rope", "gain"))


@functools.lru_cache(maxsize=64)
def layer_program(config: Config, variant: Variant, dtype: str) -> Program:
    """One layer of a window; returns the residual stream, times the next gain if ``ahead``, and the caches."""
    step = Step(config, variant, checked_dtype(dtype))
    carried = ("residual", "scaled") if step.ahead else ("residual",)
    names = (*carried, "next_norm", "turns", *ROW_ARGUMENTS, *layer_arguments(config, dtype), *CACHES)

    def layer(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        rows = Rows(given["turns"], *(given[name] for name in ROW_ARGUMENTS))
        results = step.layer(given["residual"], given.get("scaled"), given, given["next_norm"], rows)
        return tuple(x for x in results if x is not None)

    return Program(layer, "layer", names)


def layer_specs(config: Config, variant: Variant, dtype: str, lengths: Iterable[int]) -> tuple[Any, ...]:
    """Specs of the arguments of :func:`layer_program` for one window of requests of ``lengths`` keys.

    Raises:
        ModelError: as :func:`decode_specs`; more requests than a window has rows.
    """
    keys = checked_lengths(config, lengths)
    if len(keys) > variant.rows:
        raise ModelError(f"`lengths` must be of at most {variant.rows} requests, a window; got {len(keys)}")
    ahead = Step(config, variant, checked_dtype(dtype))
    residual = (len(keys), config.hidden)
    carried = (spec(residual, "fp32"), *((spec(residual, ahead.input),) if ahead.ahead else ()))
    gain, turns = spec((config.hidden,), "fp32"), spec((len(keys), config.size), "fp32")
    weights, cache = layer_arguments(config, dtype).values(), _cache_spec(config, dtype, keys)
    return (*carried, gain, turns, *_row_specs(config, keys), *weights, cache, cache)


@functools.lru_cache(maxsize=64)
def head_program(config: Config, variant: Variant, dtype: str) -> Program:
    """The logits of a window, and with sampling its tokens."""
    step = Step(config, variant, checked_dtype(dtype))
    carried = ("residual", "scaled") if step.ahead else ("residual",)
    names = (*carried, "norm", "head", "ones", "base")

    def head(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        logits = step.logits(given["residual"], given.get("scaled"), given["norm"], given["head"], given["ones"])
        return (logits, step.sample(logits, given["base"])) if variant.sampling else logits

    return Program(head, "head", names)


@functools.lru_cache(maxsize=64)
def decode_program(config: Config, variant: Variant, dtype: str) -> Program:
    """A whole decode step of a batch: windows of ``variant.rows`` rows one after the other.

    Read it with :func:`pyptox.program.graph`; :func:`decode_specs` gives its arguments. It returns tokens (without
    device sampling: logits) of each window, then both caches of each layer.
    """
    step = Step(config, variant, checked_dtype(dtype))
    weights = tuple(layer_arguments(config, dtype))
    names = (
        *("tokens", "positions", *ROW_ARGUMENTS, "embedding", "rope", "norm", "head", "base"),
        *(f"layers.{n}.{name}" for n in range(config.layers) for name in (*weights, *CACHES)),
    )

    def decode(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        layers = [{name: given[f"layers.{n}.{name}"] for name in (*weights, *CACHES)} for n in range(config.layers)]
        results = []
        for first in range(0, given["tokens"].shape[0], variant.rows):
            here = slice(first, min(first + variant.rows, given["tokens"].shape[0]))
            slots = slice(here.start * config.key_heads, here.stop * config.key_heads)
            inputs = given["tokens"][here], given["positions"][here], given["embedding"], given["rope"]
            residual, turns, scaled = step.embed(*inputs, layers[0]["input_norm"], results[-1:])
            ones = given["ones"][here]
            places, table, lengths = (given[name][here] for name in ("places", "table", "lengths"))
            rows = Rows(turns, given["slots"][slots], places, table, lengths, ones)
            for number, w in enumerate(layers):
                after = layers[number + 1]["input_norm"] if number + 1 < config.layers else given["norm"]
                residual, scaled, *caches = step.layer(residual, scaled, w, after, rows)
                w.update(zip(CACHES, caches, strict=True))
            logits = step.logits(residual, scaled, given["norm"], given["head"], ones)
            results.append(step.sample(logits, given["base"]) if variant.sampling else logits)
        return (*results, *(w[name] for w in layers for name in CACHES))

    return Program(decode, "qwen3_14b", names)


def decode_specs(config: Config, dtype: str, lengths: Iterable[int], *, pages: int | None = None) -> tuple[Any, ...]:
    """Specs of the arguments of :func:`decode_program` for requests of ``lengths`` keys, the new ones included.

    ``pages`` a request; as many as the longest needs where left out.

    Raises:
        ModelError: no request, one without a key, or one beyond the model's context.
    """
    keys = checked_lengths(config, lengths)
    checked_dtype(dtype)
    batch, stored = len(keys), "fp32" if dtype == "fp32" else "bf16"
    rows, cache = _row_specs(config, keys, pages), _cache_spec(config, dtype, keys, pages)
    layer = [*layer_arguments(config, dtype).values(), cache, cache]
    table = spec((config.vocabulary, config.hidden), stored)
    rope = spec((_pages(keys, pages) * PAGE, config.size), "fp32")
    ends = table, rope, spec((config.hidden,), "fp32"), table, spec((1,), "int32")
    return (spec((batch,), "int32"), spec((batch,), "int32"), *rows, *ends, *(layer * config.layers))


def checked_lengths(config: Config, lengths: Iterable[int]) -> list[int]:
    """The keys of each request.

    Raises:
        ModelError: no request, one without a key, or one beyond the model's context.
    """
    keys = list(lengths)
    if not keys or min(keys) < 1:
        raise ModelError(f"`lengths` must hold a positive number for each request; got {keys}")
    if max(keys) > config.context:
        raise ModelError(f"`lengths` must be at most {config.context}, the model's context; got {max(keys)}")
    return keys


def _pages(keys: Sequence[int], pages: int | None) -> int:
    return pages or -(-max(keys) // PAGE)


def _cache_spec(config: Config, dtype: str, keys: Sequence[int], pages: int | None = None) -> Any:
    shape = len(keys) * _pages(keys, pages), config.key_heads, PAGE, config.size
    return spec(shape, "fp32" if dtype == "fp32" else "bf16")


def _row_specs(config: Config, keys: Sequence[int], pages: int | None = None) -> tuple[Any, ...]:
    """Of the arguments called :data:`ROW_ARGUMENTS`."""
    batch = len(keys)
    places = spec((batch * config.key_heads,), "int32"), spec((batch, 2), "int32")
    return *places, spec((batch, _pages(keys, pages)), "int32"), pl.control(keys), spec((batch, 1), "fp32")


assert set(SPLIT) == set(PROJECTIONS)
