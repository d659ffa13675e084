"""The kernel library, written once in :mod:`pyptox.lang`."""

from ._attention import flash_attention as flash_attention
from ._matmul import grouped_matmul as grouped_matmul
from ._matmul import matmul as matmul
from ._matmul import matmul_bias_activation as matmul_bias_activation
from ._matmul import matmul_nt as matmul_nt
from ._matmul import matmul_panels as matmul_panels
from ._matmul import matmul_split_k as matmul_split_k
from ._matmul import matmul_split_k_nt as matmul_split_k_nt
from ._matmul import matmul_staged as matmul_staged
