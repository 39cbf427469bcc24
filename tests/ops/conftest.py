"""Where the tests of kernels run.

Those of Triton in its interpreter, and on a GPU those that are marked so; those of the CPU kernel with the
library that NSE_TEST_KERNEL names, if it is set (sanitize_kernel.py).
"""

import os
from pathlib import Path

import pytest
import torch

from nse.ops.cpu import library

if "NSE_TEST_KERNEL" in os.environ:
    library.PATH = Path(os.environ["NSE_TEST_KERNEL"])
    assert library.explain_no_kernel() is None  # or its tests would be skipped


@pytest.fixture
def interpreted_or_on_gpu(request, monkeypatch):
    gpu = request.node.get_closest_marker("gpu") is not None
    if not gpu and torch.cuda.is_available():
        pytest.skip("runs in Triton's interpreter; with a CUDA device the tests marked gpu run instead")
    if not gpu:
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(
    params=[
        pytest.param("cpu", id="interpreted"),
        pytest.param("cuda", marks=pytest.mark.gpu, id="on the gpu"),
    ]
)
def device(request, interpreted_or_on_gpu):
    return request.param
