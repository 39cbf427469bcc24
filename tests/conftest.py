"""Every test runs with uninitialised memory made visible, one thread a worker, and a seed of its own."""

import gc
import os
import sys
from importlib.util import find_spec

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as `import nse` says, but PyTorch comes first here

import pytest
import torch


def poisoned(allocate):
    """`allocate`, but floats come as NaN and integers as a number that no test expects."""

    def allocate_and_poison(*args, **kwargs):
        tensor = allocate(*args, **kwargs)
        with torch.no_grad():
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.fill_(float("nan"))
            elif tensor.dtype != torch.bool:
                tensor.fill_(101)
        return tensor

    return allocate_and_poison


for owner, name in [
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "empty_strided"),
    (torch.Tensor, "new_empty"),
    (torch.Tensor, "new_empty_strided"),
]:
    setattr(owner, name, poisoned(getattr(owner, name)))

torch.set_num_threads(1)

# Without a CUDA device, Triton kernels are tested in its interpreter. It must be asked for before triton is
# imported, which lightning does too; from then on only tests/ops/test_triton.py asks for it.
if find_spec("triton") and not torch.cuda.is_available():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import triton.language  # noqa: F401


def pytest_collection_finish():
    """Let the garbage collector ignore what was imported; it would look at it hundreds of times."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_unconfigure():
    gc.unfreeze()  # or libraries would complain of what is left as Python ends


@pytest.fixture(autouse=True)
def _seed(request):
    torch.manual_seed(len(request.node.name))


@pytest.fixture(autouse=True)
def _no_threads_of_commands():
    """A command lets its process compute side by side; a process forked later has none of its threads."""
    yield
    if batches := sys.modules.get("nse.inference.batches"):
        batches._threads = None


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """The CPU, and with `-m gpu` a CUDA device."""
    return request.param
