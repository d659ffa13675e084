"""The tasks that a decode step is made of: products, norms and vector kernels of one variant."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyptox import kernels
from pyptox import lang as pl
from pyptox import program as pp
from pyptox.program import Tensor, submit

from ._config import Config
from ._variant import Projection, Variant
from ._weights import PROJECTIONS, layer_shapes

STAGES = {"q": ("q",), "kv": ("k", "v"), "attention": ("o",), "mlp": ("gate", "up", "down")}
"""Which products are seeded by one task where seeds are funnelled; those behind attention wait for it alone."""


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


SEED_BYTES = 3 << 16
"""Of all slots of a tile that is cleared, and one more: they fit Vec whatever the other vector kernels take."""


@dataclass(frozen=True)
class Normed:
    """The input of projections: ``x``, int8 with ``scale`` in a8w8; rows of the product still take ``inverse``."""

    x: Tensor
    scale: Tensor | None
    inverse: Tensor


def slices(count: int, step: int) -> list[slice]:
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

    def cut(self, plan: Projection) -> dict[str, int]:
        """Of a product. Plans are for elements of two bytes; of those of four half as many fill Mat, and 512 columns
        Right in its two slots."""
        n, k = (min(plan.n, 512), plan.k // 2) if self.stored == "fp32" else (plan.n, plan.k)
        return {"m": self.variant.rows, "n": n, "k": k, "stages": plan.stages}

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
        widths = {n: layer_shapes(self.config)[n][1] for n in PROJECTIONS if getattr(v, n).splits > 1}
        if self.dtype == "a8w8":
            return {}
        stages = STAGES if v.funnel else {name: (name,) for name in PROJECTIONS}
        seeded = {}
        for stage, members in stages.items():
            total = sum(widths.get(name, 0) for name in members)
            if not total:
                continue
            pool = pp.empty((rows * total,), "fp32", name=f"seeded_{stage}")
            most = SEED_BYTES // (v.stages + 1) // 4 // -(-v.rows // v.row_steps)
            tile = self.tile(min(4 * v.columns, most))
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
        tile = self.cut(plan)
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
                **self.cut(plan),
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
            return self.submit(kernels.matmul_residual, x.x, w[name], residual, name=name, **self.cut(plan)), None
        product = self.project(name, x, w, seeds, behind=behind)
        tasks = {"dtype": "fp32", "name": f"{name}_residual", "each": v.vector_tiles * plan.n}
        if v.deferred:
            kernel = kernels.residual_scale(self.input)
            return self.columns(kernel, residual, product, gain, extra=self.input, **tasks)
        return self.columns(kernels.residual_add, residual, product, **tasks), None

    def scaled(self, residual: Tensor, gain: Tensor) -> Tensor:
        return self.columns(kernels.scale_columns(self.input), residual, gain, dtype=self.input, name="x_gamma")
