"""Linear maps for inference on a CPU, with weights in the layout that oneDNN multiplies fastest.

A step of a recurrence multiplies few rows by large matrices, which oneDNN does faster with packed weights.
PyTorch packs weights when it freezes a compiled model, through operators that are not public. Only this file
uses them; where they are missing, products are plain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ONEDNN: Any = torch.ops.mkldnn
ROWS = 64
"""Number of rows that the layout is optimised for; any other number works too."""


class PackedLinear:
    """The function x W^T + b, of W [n, k] and b [n] or none, without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.bias = None if bias is None else bias.detach()
        self.is_packed = can_pack(weight)
        weight = weight.detach().contiguous()
        self.weight = ONEDNN._reorder_linear_weight(weight, ROWS) if self.is_packed else weight

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as plain weights: packed ones cannot be copied."""
        return PackedLinear, (self.weight.to_dense() if self.is_packed else self.weight, self.bias)

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Multiply x [N, k], and add the bias or, in its place, `plus` [N, n]."""
        result: Tensor
        if not self.is_packed:
            result = F.linear(x, self.weight, self.bias) if plus is None else plus.addmm(x, self.weight.t())
        elif plus is None:
            result = ONEDNN._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        else:
            result = ONEDNN._linear_pointwise.binary(x, plus, self.weight, None, "add")
        return result


def can_pack(weight: Tensor) -> bool:
    """Return whether this PyTorch can pack a weight."""
    is_available = torch.backends.mkldnn.is_available() and weight.device.type == "cpu"
    return is_available and weight.dtype == torch.float32 and hasattr(ONEDNN, "_linear_pointwise")
