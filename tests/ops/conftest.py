"""Where the tests of Triton kernels run: in its interpreter, and on a GPU those that are marked so."""

import pytest
import torch


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
