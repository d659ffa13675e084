"""One problem for every kernel of the library, ragged where the kernel allows it."""

from collections.abc import Iterator

import pyptox as px
from pyptox import lang as pl


def problems() -> list[tuple[pl.Kernel, dict[str, pl.Spec]]]:
    """Every kernel, and the specs of its tensors."""
    return list(_problems())


def _problems() -> Iterator[tuple[pl.Kernel, dict[str, pl.Spec]]]:
    bf16 = px.spec
    k = px.kernels
    yield k.matmul, k.matmul.specs(bf16((100, 700), "bf16"), bf16((700, 1500), "bf16"))
    yield k.matmul_nt, k.matmul_nt.specs(bf16((100, 700), "int8"), bf16((1500, 700), "int8"))
    yield k.matmul_split_k, k.matmul_split_k.specs(bf16((16, 3000), "fp16"), bf16((3000, 900), "fp16"))
    yield k.matmul_staged, k.matmul_staged.specs(bf16((200, 1000), "bf16"), bf16((900, 1000), "bf16"))
    yield k.matmul_split_k_nt, k.matmul_split_k_nt.specs(bf16((16, 3000), "fp16"), bf16((900, 3000), "fp16"))
    yield k.matmul_panels, k.matmul_panels.specs(bf16((100, 128), "int8"), bf16((1500, 128), "int8"))
    mixed = k.matmul_bias_activation
    yield mixed, mixed.specs(bf16((100, 700), "bf16"), bf16((700, 1500), "bf16"), bf16((1500,), "fp32"))
    yield k.matmul_wide, k.matmul_wide.specs(bf16((100, 700), "bf16"), bf16((700, 1500), "bf16"))
    yield k.matmul_wide_nt, k.matmul_wide_nt.specs(bf16((100, 700), "int8"), bf16((1500, 700), "int8"))
    factors, stream = bf16((100, 1), "fp32"), bf16((100, 1500), "fp32")
    gated, weight = k.matmul_swiglu("bf16"), bf16((700, 1500), "bf16")
    yield gated, gated.specs(bf16((100, 700), "bf16"), weight, weight, factors)
    yield k.matmul_residual, k.matmul_residual.specs(bf16((100, 700), "bf16"), weight, stream)
    rows, wide, vector = px.spec((1000, 700), "bf16"), px.spec((1000, 3000), "fp16"), px.spec((700,), "fp32")
    yield k.rms_norm, k.rms_norm.specs(rows, vector)
    yield k.rms_norm_tiled, k.rms_norm_tiled.specs(rows, vector)
    yield k.layer_norm, k.layer_norm.specs(rows, vector, vector)
    yield k.layer_norm_tiled, k.layer_norm_tiled.specs(rows, vector, vector)
    yield k.softmax, k.softmax.specs(rows)
    yield k.softmax_two_pass, k.softmax_two_pass.specs(wide)
    yield k.softmax_online, k.softmax_online.specs(wide)
    yield k.swiglu, k.swiglu.specs(wide, wide)
    angles = px.spec((300, 64), "fp32")
    yield k.rope, k.rope.specs(px.spec((300, 40, 128), "bf16"), angles, angles)
    yield k.rope_interleaved, k.rope_interleaved.specs(px.spec((300, 40, 128), "fp32"), angles, angles)
    inverse, stream = px.spec((1000, 1), "fp32"), px.spec((1000, 700), "fp32")
    yield k.rms_reciprocal, k.rms_reciprocal.specs(stream)
    yield k.scale_columns("bf16"), k.scale_columns("bf16").specs(stream, vector)
    yield k.scale_rows("bf16"), k.scale_rows("bf16").specs(stream, inverse)
    yield k.swiglu_deferred("bf16"), k.swiglu_deferred("bf16").specs(stream, stream, inverse)
    yield k.residual_scale("bf16"), k.residual_scale("bf16").specs(stream, stream, vector)
    turned, heads = k.norm_rope("bf16"), px.spec((300, 40, 128), "fp32")
    yield turned, turned.specs(heads, px.spec((300, 1), "fp32"), px.spec((128,), "fp32"), angles, angles)
    yield k.quantize_per_token, k.quantize_per_token.specs(rows)
    yield k.quantize_per_token_tiled, k.quantize_per_token_tiled.specs(wide)
    yield k.quantize_per_channel, k.quantize_per_channel.specs(rows, vector)
    integers = px.spec((1000, 700), "int8")
    yield k.dequantize_per_token, k.dequantize_per_token.specs(integers, px.spec((1000, 1), "fp32"))
    yield k.dequantize_per_channel, k.dequantize_per_channel.specs(integers, vector)
    weight, scales = px.spec((700, 1500), "int8"), (px.spec((1000, 1), "fp32"), px.spec((1500,), "fp32"))
    yield k.w8a8_matmul, k.w8a8_matmul.specs(integers, weight, *scales)
    yield k.w8a8_matmul_fp32, k.w8a8_matmul_fp32.specs(integers, weight, *scales)
    numbers = px.spec((1000,), "int32")
    yield k.gather_rows, k.gather_rows.specs(px.spec((50000, 700), "bf16"), numbers)
    yield k.cache_write, k.cache_write.specs(rows, numbers, px.spec((20000, 700), "bf16"))
    yield k.argmax_shard, k.argmax_shard.specs(wide, px.spec((1,), "int32"))
    stacked = px.spec((16, 1000), "fp32"), px.spec((16, 1000), "int32")
    yield k.argmax_merge, k.argmax_merge.specs(*stacked)
    groups = k.top_k_groups(8, groups=4)
    yield groups, groups.specs(wide)
    pairs = px.spec((1000, 128), "fp32"), px.spec((1000, 128), "int32")
    yield k.top_k_merge(8), k.top_k_merge(8).specs(*pairs)
    yield k.residual_add, k.residual_add.specs(px.spec((1000, 3000), "fp32"), wide)
    yield k.clear, k.clear.specs(wide)
    yield k.copy, k.copy.specs(wide)
    yield k.convert("int8"), k.convert("int8").specs(wide)
    rows_of_scan = k.scan_rows(40)
    yield rows_of_scan, rows_of_scan.specs(px.spec((20000, 128), "fp16"), px.spec((128, 128), "fp16"))
    yield k.scan_carry, k.scan_carry.specs(px.spec((20000, 128), "fp32"), px.spec((40,), "fp32"))
    parts = (px.spec((4, 128, size), "bf16") for size in (512, 64))
    tables = (px.spec((9000, size), "bf16") for size in (512, 64))
    yield k.sparse_attention, k.sparse_attention.specs(*parts, *tables, px.spec((4, 2000), "int32"))
    attention = k.flash_attention
    yield attention, attention.specs(*(px.spec((8, 1024, 128), "bf16"),) * 3)
    paged, cache = k.paged_attention, px.spec((80, 8, 128, 128), "bf16")
    places = px.spec((16, 5), "int32"), pl.control([40 * n for n in range(16)])
    yield paged, paged.specs(px.spec((16, 8, 5, 128), "bf16"), cache, cache, *places)
    query = px.spec((16, 8, 5, 128), "bf16")
    yield k.paged_scores, k.paged_scores.specs(query, cache, *places)
    soft, scores = k.softmax_lengths("bf16"), px.spec((16, 8, 5, 640), "fp32")
    yield soft, soft.specs(scores, places[1])
    yield k.paged_values, k.paged_values.specs(px.spec((16, 8, 5, 640), "bf16"), cache, *places)
    step, new = k.decode_attention, px.spec((16, 8, 128), "fp32")
    gain, turn, numbers = px.spec((128,), "fp32"), px.spec((16, 64), "fp32"), px.spec((16, 2), "int32")
    projected = px.spec((16, 8, 5, 128), "fp32"), new, new, px.spec((16, 1), "fp32"), gain, gain, turn, turn
    yield step, step.specs(*projected, numbers, *places, cache, cache)
    grouped = k.grouped_matmul
    sizes = pl.control([64, 0, 200, 16])
    yield grouped, grouped.specs(px.spec((280, 512), "bf16"), px.spec((4, 512, 1024), "bf16"), sizes)
