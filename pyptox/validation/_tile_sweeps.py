"""``tile_sweeps.csv``: variants of a tile, a layout or a pipeline, and what the verifier rejects.

Few rows state everything. What a row leaves out is taken from the other rows of its group, then assumed; such a
prediction means something beside those of its group only, and says so. A row that states neither a size of the
product nor anything that was varied is not covered.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product as product_of
from typing import Any

from .._dtypes import dtype_of
from ..cost import Options
from ..hardware import PRESETS, Hardware, Sizes, preset
from ..kernels import (
    flash_attention,
    matmul,
    matmul_nt,
    matmul_panels,
    matmul_split_k,
    matmul_split_k_nt,
    quantize_per_token_tiled,
    softmax_two_pass,
)
from ..lang._kernel import Kernel
from ..lang._types import Spec, spec
from ._problem import NotCovered, Problem, Row, count, number, product, text

PRODUCT = re.compile(r"matmul|gemm|proj|expert|_mm\b|score_mat|hc_pre|prefill|^\d+x\d+x\d+$", re.IGNORECASE)
OTHER = re.compile(r"sparse|softmax|gather|requant|_q\b|amax|qk_pv", re.IGNORECASE)
"""Operations that are a product of two matrices, and those that only sound like one."""

QUANTISED = re.compile(r"requant|_q\b|quant_amax", re.IGNORECASE)
ATTENTION = re.compile(r"qk_pv|sparse_attn", re.IGNORECASE)
"""Operations that quantise rows, and those that attend to picked keys, already gathered."""

EXTENT, DECODE_M = 4096, 16
"""Assumed where nothing is stated: K and N, and the rows of a decode step."""

USUAL = {"CATLASS": {"m": 128, "k": 512, "n": 256}, "": {"m": 128, "k": 1024, "n": 128}}
"""The tile that the rows of this file state most often, of CATLASS and of decode kernels; k in bytes."""

LATENT = 512
"""Width of the latent KV cache of DeepSeek V4, which the attention rows of this file read."""

ATTENDING, PICKED, TOKENS = 64, 640, 8
"""Heads of its decode attention, keys that a token picks (five blocks of 128, as some rows say), rows of a step."""

SHARED_COLUMNS = ("M", "K", "N", "dtype_a", "dtype_b", "platform", "cores", "b_layout")


def fill(rows: Sequence[Row]) -> list[Row]:
    """Rows with empty columns taken from their group, where the group states one value."""
    stated: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for column in SHARED_COLUMNS:
            stated.setdefault((text(row, "group"), column), set()).add(text(row, column))
    filled = []
    for row in rows:
        known = {c: stated[text(row, "group"), c] - {""} for c in SHARED_COLUMNS}
        given = {c: next(iter(v)) for c, v in known.items() if len(v) == 1 and not text(row, c)}
        filled.append({**row, **given})
    return filled


def outcome(row: Row, hardware: Hardware) -> str | None:
    """``"rejected"`` or ``"ok"`` where the row states which on-chip space its tile must fit; else None.

    A limit that names L0A or L0B says that the tile is staged whole, in two slots; one that names L0C or an
    accumulator, that a tile of four-byte elements stays there.
    """
    detail = text(row, "limit_detail")
    sizes = re.search(r"(\d+)\*(\d+)\*(\d+)", detail)
    staged = re.search(r"L0([AB])", detail)
    limits = hardware.sizes
    if staged:
        if sizes:
            rows, columns, width = (int(part) for part in sizes.groups())
        else:
            width = dtype_of(_dtype(row)).bytes
            rows, columns = _tile(row, "k")[0], _tile(row, "m" if staged.group(1) == "A" else "n")[0]
        return _verdict(2 * rows * columns * width > (limits.left if staged.group(1) == "A" else limits.right))
    if "L0C" in detail or "accumulator" in detail:
        if "qk_pv" in text(row, "op"):
            # scores of one block of keys, and the output over the latent width, at the same time
            keys = re.search(r"\[(\d+), ?(\d+)\]", detail)
            width = int(keys.group(2)) if keys else count(row, "tile_k")
            return _verdict(count(row, "tile_m") * (width + LATENT) * 4 > limits.acc)
        return _verdict(_tile(row, "m")[0] * _tile(row, "n")[0] * 4 > limits.acc)
    if re.search(r"\b(OOM|overflow|exceed)", detail):
        raise NotCovered("the limit does not say which space overflows, or how much of it is asked for")
    return None


def _verdict(too_large: bool) -> str:
    return "rejected" if too_large else "ok"


def _dtype(row: Row) -> str:
    return text(row, "dtype_b") or text(row, "dtype_a") or "bf16"


def _tile(row: Row, axis: str) -> tuple[int, bool]:
    """A tile size, and whether it is stated: the extent where that is smaller, else the usual one."""
    if text(row, f"tile_{axis}"):
        return count(row, f"tile_{axis}"), True
    usual = USUAL["CATLASS" if "CATLASS" in text(row, "op") else ""][axis]
    if axis == "k":
        usual //= dtype_of(_dtype(row)).bytes
    extent = text(row, axis.upper())
    return min(usual, int(extent)) if extent.isdigit() and int(extent) else usual, False


def _tiles(row: Row, sizes: Sizes) -> dict[str, tuple[int, bool]]:
    """The L1 tile; a depth that is not stated is halved until two slots of both operands fit."""
    tiles = {axis: _tile(row, axis) for axis in "mkn"}
    if not text(row, "M") and not tiles["m"][1]:
        tiles["m"] = (DECODE_M, False)
    depth, known = tiles["k"]
    row_bytes = 2 * (tiles["m"][0] + tiles["n"][0]) * dtype_of(_dtype(row)).bytes
    while not known and depth > 16 and depth * row_bytes > sizes.mat:
        depth //= 2
    return tiles | {"k": (depth, known)}


def _die(row: Row) -> Hardware:
    platform = text(row, "platform")
    return preset(platform if platform in PRESETS else "a2a3")


def _cores(row: Row) -> int | None:
    """How many cores share the work, where the row says so."""
    if "isolated" in text(row, "op"):
        return 1
    if text(row, "tasks") and count(row, "tasks") <= _die(row).counts.aic:
        return count(row, "tasks")
    return count(row, "cores") if text(row, "cores") else None


def problem(row: Row) -> Problem:
    """The product of a row; what is not stated is listed in its ``assumed``."""
    op, variant = text(row, "op"), text(row, "variant")
    if text(row, "unit") != "us":
        raise NotCovered("not a time in us")
    if ATTENTION.search(op):
        return _attention(row)
    if "softmax" in op:
        return _softmax(row)
    if QUANTISED.search(op):
        return _quantised(row)
    if not PRODUCT.search(op) or OTHER.search(op):
        raise NotCovered("not a product of two matrices, nor a quantisation, a softmax or an attention")
    if re.search(r"single-core split-?k|full-load|scope", variant, re.IGNORECASE):
        raise NotCovered("a schedule that is not among the kernels of the library")
    die, cores = _die(row), _cores(row)
    tiles = _tiles(row, die.sizes)
    split = bool(re.search(r"split-?k", variant, re.IGNORECASE))
    pages = re.search(r"(\d+) serial iterations", text(row, "note"))
    sizes = [text(row, c) for c in "MKN"]
    varied = any(known for _, known in tiles.values()) or split
    varied = varied or any(text(row, c) for c in ("pipeline_stage", "tasks", "b_layout"))
    if not any(sizes) or not (varied or all(sizes)):
        raise NotCovered("no size of the product is stated, or nothing that was varied")
    m = count(row, "M") if sizes[0] else max(DECODE_M, tiles["m"][0])
    k = count(row, "K") if sizes[1] else max(EXTENT, tiles["k"][0])
    n = count(row, "N") if sizes[2] else max(EXTENT, tiles["n"][0])
    transposed = text(row, "b_layout").startswith(("[N,K]", "ColumnMajor"))
    kernel = matmul_nt if transposed else matmul
    values: dict[str, int] = {axis: size for axis, (size, _) in tiles.items()}
    if text(row, "pipeline_stage"):
        values["stages"] = count(row, "pipeline_stage")
    if split:
        kernel = matmul_split_k_nt if transposed else matmul_split_k
        blocks = -(-m // values["m"]) * -(-n // values["n"])
        values["splits"] = max(1, min(64, int(cores or die.counts.aic) // blocks))
    elif pages:
        # each task multiplies one tile by so many pages of keys
        kernel, transposed = matmul_panels, True
        values = {"m": m, "n": n, "panels": int(pages.group(1)), "stages": values.get("stages", 2)}
        n *= values["panels"] * (cores or 1)
    assumed = _assumed(row, tiles, split)
    layouts = ("rows", "zN" if text(row, "b_layout") == "zN" else "rows")
    return Problem(
        kernel,
        product(kernel, m, n, k, _dtype(row), transposed, layouts),
        kernel.configuration(values),
        number(row, "value"),
        options=Options(warm=4, sync="manual" if "CATLASS" in op else "auto", cores=cores),
        die=text(row, "platform") if text(row, "platform") in PRESETS else None,
        assumed=assumed,
        absolute=not assumed,
    )


def _quantised(row: Row) -> Problem:
    """Rows quantised in column tiles, one pass for the largest magnitude and one for the result."""
    if not text(row, "tile_n"):
        raise NotCovered("a quantisation whose tile is not stated: what varies is where it runs")
    rows = count(row, "M") if text(row, "M") else DECODE_M
    width = count(row, "N") if text(row, "N") else EXTENT
    assumed = [name for name, known in (("M", text(row, "M")), ("N", text(row, "N"))) if not known]
    kernel = quantize_per_token_tiled
    values = kernel.configuration({"m": DECODE_M, "n": count(row, "tile_n")})
    return _relative(row, kernel, kernel.specs(spec((rows, width), "fp32")), values, [*assumed, "fp32 inputs"])


def _softmax(row: Row) -> Problem:
    """A softmax of rows in column tiles; a variant such as ``[1,64] x8`` says how many tiles a row has."""
    stated = re.search(r"\[(\d+), ?(\d+)\] ?x ?(\d+)", text(row, "variant"))
    if stated is None:
        raise NotCovered("a softmax whose tile is not stated as [rows,columns] xcount")
    m, n, tiles = (int(part) for part in stated.groups())
    if not m * n * tiles:
        raise NotCovered("a softmax of an empty tile")
    kernel = softmax_two_pass
    rows = count(row, "M") if text(row, "M") else DECODE_M * int(_die(row).counts.aiv)
    specs = kernel.specs(spec((rows, n * tiles), "fp32"))
    return _relative(row, kernel, specs, kernel.configuration({"m": m, "n": n}), ["M", "fp32 inputs"])


def _attention(row: Row) -> Problem:
    """Tokens that attend to picked keys, cut into ``NSPLIT`` parts, each a task; keys and values are read apart."""
    op, variant = text(row, "op"), text(row, "variant")
    split = re.search(r"NSPLIT=(\d+)", variant)
    parts = max(1, int(split.group(1))) if split else 1
    tokens = re.search(r"\b[TB]=(\d+)", op)
    tasks = count(row, "tasks") if text(row, "tasks") else 0
    if not (text(row, "tile_m") or text(row, "tile_k") or tasks):
        raise NotCovered("an attention of which nothing that was varied is stated")
    if op.endswith("aiv"):
        tasks //= 2  # two vector cores do one task
    many = int(tokens.group(1)) if tokens else max(1, tasks // parts) if tasks else TOKENS
    m, n = (count(row, c) if text(row, c) else usual for c, usual in (("tile_m", 32), ("tile_k", 128)))
    blocks = -(-PICKED // n)
    keys = -(-blocks // parts) * n
    shapes = ((many * parts, ATTENDING, LATENT), *((many * parts, keys, LATENT),) * 2)
    specs = flash_attention.specs(*(spec(shape, "bf16") for shape in shapes))
    assumed = [f"{ATTENDING} heads of {LATENT}", f"{PICKED} keys a token", "keys and values apart"]
    assumed += [] if tokens or tasks else [f"{TOKENS} tokens"]
    # all heads of a part are one task, on one core
    waves = -(-many * parts // int(_die(row).counts.aic))
    cores = -(-many * parts // waves)
    for stages, slices in product_of((2, 1), (1, 2, 4, 8)):
        values = flash_attention.configuration({"m": m, "n": n, "stages": stages, "slices": slices, "preload": 1})
        asked = _relative(row, flash_attention, specs, values, assumed, cores)
        if asked.cost(_die(row)).legal:
            return asked
    raise NotCovered("none of the slots and slices that were tried fits the chip")


def _relative(
    row: Row,
    kernel: Kernel,
    specs: Mapping[str, Spec],
    values: Mapping[str, Any],
    assumed: Sequence[str],
    cores: int | None = None,
) -> Problem:
    """A problem to compare inside its group."""
    assumed = list(assumed)
    if text(row, "other_changes"):
        assumed.append("that only the tile matters")
    if not text(row, "metric").startswith("kernel time"):
        assumed.append(f"that `{text(row, 'metric')}` follows the kernel's time")
    choices = tuple((name, values[name]) for name in kernel.choices)
    options = Options(warm=4, sync="auto", cores=cores, choices=choices)
    die = text(row, "platform") if text(row, "platform") in PRESETS else None
    return Problem(
        kernel, specs, values, number(row, "value"), options=options, die=die, assumed=tuple(assumed), absolute=False
    )


def _assumed(row: Row, tiles: dict[str, tuple[int, bool]], split: bool) -> tuple[str, ...]:
    """What had to be filled in."""
    assumed = [c for c in "MKN" if not text(row, c)]
    assumed += ["splits"] if split else [f"tile_{axis}" for axis, (_, known) in tiles.items() if not known]
    if not (text(row, "dtype_a") or text(row, "dtype_b")):
        assumed.append("dtype")
    if text(row, "other_changes"):
        assumed.append("that only the tile matters")
    if not text(row, "metric").startswith("kernel time"):
        assumed.append(f"that `{text(row, 'metric')}` follows the product's time")
    return tuple(assumed)
