"""Products with weights that stay as they are, laid out once as a CPU multiplies them fastest.

A step of a recurrence multiplies few rows by large matrices, and oneDNN is faster at that with packed
weights. PyTorch packs weights so when it freezes a compiled model, and has no public name for it: this file
is the only one that knows it, and where it is missing, products are plain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ONEDNN: Any = torch.ops.mkldnn
ROWS = 64
"""For which number of rows weights are laid out; any other number is multiplied as well."""


class Product:
    """The function x W' + b, of W [n, k] and b [n] or none, for answers: there is no gradient."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.bias = None if bias is None else bias.detach()
        self.is_packed = can_pack(weight)
        weight = weight.detach().contiguous()
        self.weight = ONEDNN._reorder_linear_weight(weight, ROWS) if self.is_packed else weight

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle it as plain weights, which are laid out anew: packed ones cannot be copied."""
        return Product, (self.weight.to_dense() if self.is_packed else self.weight, self.bias)

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Multiply x [N, k], and add the bias, or plus [N, n] instead of it."""
        found: Tensor
        if not self.is_packed:
            found = F.linear(x, self.weight, self.bias) if plus is None else plus.addmm(x, self.weight.t())
        elif plus is None:
            found = ONEDNN._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        else:
            found = ONEDNN._linear_pointwise.binary(x, plus, self.weight, None, "add")
        return found


def can_pack(weight: Tensor) -> bool:
    """Tell whether this PyTorch packs such weights."""
    there = torch.backends.mkldnn.is_available() and weight.device.type == "cpu"
    return there and weight.dtype == torch.float32 and hasattr(ONEDNN, "_linear_pointwise")
