"""The kernel library, written once in :mod:`pyptox.lang`."""

from ._activation import residual_add as residual_add
from ._activation import swiglu as swiglu
from ._matmul import grouped_matmul as grouped_matmul
from ._matmul import matmul as matmul
from ._matmul import matmul_bias_activation as matmul_bias_activation
from ._matmul import matmul_nt as matmul_nt
from ._matmul import matmul_panels as matmul_panels
from ._matmul import matmul_split_k as matmul_split_k
from ._matmul import matmul_split_k_nt as matmul_split_k_nt
from ._matmul import matmul_staged as matmul_staged
from ._norm import layer_norm as layer_norm
from ._norm import layer_norm_tiled as layer_norm_tiled
from ._norm import rms_norm as rms_norm
from ._norm import rms_norm_tiled as rms_norm_tiled
from ._quant import dequantize_per_channel as dequantize_per_channel
from ._quant import dequantize_per_token as dequantize_per_token
from ._quant import quantize_per_channel as quantize_per_channel
from ._quant import quantize_per_token as quantize_per_token
from ._quant import quantize_per_token_tiled as quantize_per_token_tiled
from ._quant import w8a8_matmul as w8a8_matmul
from ._quant import w8a8_matmul_fp32 as w8a8_matmul_fp32
from ._rope import rope as rope
from ._rope import rope_interleaved as rope_interleaved
from ._softmax import softmax as softmax
from ._softmax import softmax_online as softmax_online
from ._softmax import softmax_two_pass as softmax_two_pass
