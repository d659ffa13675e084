"""Variants of the decode program: the same function with other tiles, tasks, kernels and edges."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._config import ModelError

ATTENTION = ("steps", "paged", "fused")
"""How attention is cut into kernels: scores, softmax and values through GM; one paged kernel after norm, rotation and
cache write; all of it in one."""


@dataclass(frozen=True)
class Projection:
    """How one product with a weight is cut.

    Attributes:
        n, k: columns and reduction of an L1 tile.
        splits: slices of K, whose blocks add to a seeded output; 1 for none.
        stages: slots of the K pipeline.
        tiles: column tiles of a task; 0 for all in one SPMD task.
        wave: column tiles that go first as a task of their own, the others behind a dummy; 0 for none.
    """

    n: int = 256
    k: int = 256
    splits: int = 1
    stages: int = 2
    tiles: int = 0
    wave: int = 0

    def __post_init__(self) -> None:
        for name, least in (("n", 1), ("k", 1), ("splits", 1), ("stages", 1), ("tiles", 0), ("wave", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ModelError(f"`{name}` of a projection must be {least} or more, an integer; got {value!r}")

    def parts(self, columns: int) -> list[tuple[int, int]]:
        """First column and one past the last of each task's output.

        >>> Projection(n=256, wave=2).parts(1280)
        [(0, 512), (512, 1280)]
        >>> Projection(n=256, tiles=2).parts(1280)
        [(0, 512), (512, 1024), (1024, 1280)]
        """
        first = min(self.wave * self.n, columns)
        step = self.tiles * self.n or columns
        parts = [(0, first)] if first else []
        return parts + [(at, min(at + step, columns)) for at in range(first, columns, step)]


@dataclass(frozen=True)
class Early:
    """Which tasks let their followers be staged before they are finished, by what they are for.

    >>> Early(mlp=False).of("gate"), Early(mlp=False).of("down"), Early.none().of("seed_q")
    (False, True, False)
    """

    seeds: bool = True
    norm: bool = True
    qkv: bool = True
    attention: bool = True
    o: bool = True
    residual: bool = True
    mlp: bool = True
    down: bool = True
    ends: bool = True

    @classmethod
    def none(cls) -> "Early":
        return cls(**dict.fromkeys(FAMILIES, False))

    def of(self, task: str) -> bool:
        """Whether tasks called ``task`` are flagged."""
        return getattr(self, _FAMILY[task])


FAMILIES: dict[str, tuple[str, ...]] = {
    "seeds": tuple(f"seed_{name}" for name in ("q", "k", "v", "kv", "o", "attention", "gate", "up", "down", "mlp")),
    "norm": ("rms", "rms_norm", "cast", "x_gamma", "quantize"),
    "qkv": ("q", "k", "v"),
    "attention": (
        *("attention", "scores", "softmax", "values"),
        *("q_rope", "k_rope", "v_scale", "write_k_cache", "write_v_cache"),
    ),
    "o": ("o",),
    "residual": ("o_residual", "down_residual"),
    "mlp": ("gate", "up", "gate_up", "silu"),
    "down": ("down",),
    "ends": ("embed", "embed_cast", "turns", "head_cast", "head", "head_scale", "sample"),
}
"""Names of the tasks that each flag of :class:`Early` is of."""

_FAMILY = {task: family for family, tasks in FAMILIES.items() for task in tasks}


@dataclass(frozen=True)
class Variant:
    """Every choice of the decode program. All variants compute the same function.

    Attributes:
        name: shown.
        q, k, v, o, gate, up, down, head: how each product is cut.
        attention: one of :data:`ATTENTION`.
        requests, heads: requests of an attention task, and key heads where attention is in steps; 0 for all.
        pages: pages whose scores are computed ahead of the values (``preload``), in attention of one kernel.
        columns: of a block of the vector kernels.
        row_steps: row tiles in which such a block goes through the window.
        vector_tiles: column tiles of the product before it that a task of SwiGLU or of the residual takes; 0 for all
            in one SPMD task.
        rows: of the cube's tiles, and of a window of the batch.
        stages: slots of the pipelines outside the products.
        mixed: products with their vector epilogue in one kernel (SwiGLU, residual); not in ``a8w8``.
        deferred: the division of RMSNorm put off past the projections.
        funnel: one task seeds all that a layer adds to, and later tasks depend on it through attention alone.
        early: which tasks let their followers be staged before they are finished.
        sampling: greedy sampling on the device.
    """

    name: str = "tuned"
    q: Projection = Projection()
    k: Projection = Projection()
    v: Projection = Projection()
    o: Projection = Projection()
    gate: Projection = Projection()
    up: Projection = Projection()
    down: Projection = Projection()
    head: Projection = Projection(n=128, k=512)
    attention: str = "fused"
    requests: int = 0
    heads: int = 0
    pages: int = 1
    columns: int = 256
    row_steps: int = 1
    vector_tiles: int = 0
    rows: int = 16
    stages: int = 2
    mixed: bool = False
    deferred: bool = True
    funnel: bool = True
    early: Early = Early()
    sampling: bool = True

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise ModelError(f"`attention` must be one of {', '.join(ATTENTION)}; got {self.attention!r}")
        for name in ("rows", "columns"):
            if getattr(self, name) < 1:
                raise ModelError(f"`{name}` must be 1 or more; got {getattr(self, name)!r}")
        if not 1 <= self.row_steps <= self.rows:
            raise ModelError(f"`row_steps` must be 1 to the {self.rows} rows of a window; got {self.row_steps!r}")
        if self.pages not in (0, 1, 2):
            raise ModelError(f"`pages` must be 0, 1 or 2; got {self.pages!r}")

    def replace(self, **changes: Any) -> "Variant":
        """The same variant but for ``changes``."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_dict` takes them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Variant":
        """A variant of plain values; choices that are left out are those of ``Variant()``.

        Raises:
            ModelError: an unknown choice, or a value of another type.

        >>> Variant.from_dict(Variant(rows=32).to_dict()) == Variant(rows=32)
        True
        """
        return _built(cls, data, "variant")


def _built(cls: Any, data: Any, place: str) -> Any:
    if not isinstance(data, Mapping):
        raise ModelError(f"`{place}` must be an object; got {data!r}")
    known = {f.name: f for f in dataclasses.fields(cls)}
    default, values = cls(), {}
    for key, value in data.items():
        if key not in known:
            raise ModelError(f"`{place}` has no choice {key!r}; it has {', '.join(known)}")
        before = getattr(default, key)
        if dataclasses.is_dataclass(before):
            value = _built(type(before), value, f"{place}.{key}")
        elif type(value) is not type(before) or (isinstance(value, int) and value < 0):
            raise ModelError(f"`{place}.{key}` must be like {before!r}; got {value!r}")
        values[key] = value
    return cls(**values)


PROJECTED = ("q", "k", "v", "o", "gate", "up", "down")


def _projections(variant: Variant, changes: Mapping[str, Any], **own: Mapping[str, Any]) -> Variant:
    """``changes`` to every projection of a layer, ``own`` ones on top."""
    cut = {name: dataclasses.replace(getattr(variant, name), **{**changes, **own.get(name, {})}) for name in PROJECTED}
    return variant.replace(**cut)


def _ladder() -> tuple[Variant, ...]:
    """The published steps, each from the one before it. Source: the Qwen3-14B optimisation case study of pypto-lib."""
    steps = []

    def step(name: str, variant: Variant) -> Variant:
        steps.append(variant.replace(name=name))
        return steps[-1]

    # tiles of the first steps: measured/tile_sweeps.csv, group qwen14_190, which gives those after; MLP's halved before
    v = Variant(
        head=Projection(n=128, k=512, stages=1, tiles=2),
        attention="steps",
        requests=1,
        pages=0,
        vector_tiles=1,
        stages=1,
        deferred=False,
        funnel=False,
        early=Early.none(),
        sampling=False,
    )
    wide = {"n": 256, "k": 256}
    before = {name: {"n": 128} for name in ("gate", "up")}
    own = {"o": {"k": 512}, "down": {"n": 256}} | {name: {"n": 256} for name in ("gate", "up")}
    v = step("task-per-iteration", _projections(v, {"n": 64, "k": 128, "stages": 1, "tiles": 1}, **before))
    v = step("own-tiles", _projections(v, {}, **own))
    v = step(
        "pipelined",
        _projections(v, {"stages": 2}).replace(stages=2, head=dataclasses.replace(v.head, stages=2)),
    )
    v = step("aligned", _projections(v, {}, q=wide, k=wide, v=wide))
    v = step(
        "spmd",
        _projections(v, wide | {"tiles": 0}).replace(requests=0, vector_tiles=0, head=Projection(n=128, k=512)),
    )
    v = step("mixed", v.replace(mixed=True))
    v = step("fused-attention", v.replace(attention="fused", pages=1))
    v = step("deferred-norm", v.replace(deferred=True))
    narrow = {name: {"n": 512, "k": 64 if name == "o" else 128, "splits": 5} for name in "qkvo"}
    broad = {name: {"n": 1024, "k": 64, "splits": 5} for name in ("gate", "up")}
    down = {"n": 1024, "k": 64, "splits": 17}
    v = _projections(v, {}, **narrow, **broad, down=down)
    v = step("split-k", v.replace(mixed=False, columns=1024, row_steps=4, vector_tiles=1))
    v = step("funnelled", v.replace(funnel=True))
    v = step("early-dispatch", v.replace(early=Early()))
    v = step("disjoint-spmd", v.replace(vector_tiles=0))
    # one wave of the cores first: 20 blocks of `o` where 24 are published, which whole columns of 5 splits cannot make
    v = step("critical-waves", _projections(v, {}, gate={"wave": 6}, up={"wave": 6}, o={"wave": 4}))
    step("device-sampling", v.replace(sampling=True))
    return tuple(steps)


LADDER: tuple[Variant, ...] = _ladder()
"""The steps in the order in which the path was tuned."""


def variant_named(name: str) -> Variant:
    """The step of the ladder called ``name``.

    Raises:
        ModelError: there is none.
    """
    for variant in LADDER:
        if variant.name == name:
            return variant
    raise ModelError(f"`variant` must be one of {', '.join(v.name for v in LADDER)}; got {name!r}")
