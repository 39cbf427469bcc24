"""Calls of the compiled kernel: their arguments, and the threads that they run on."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nse.errors import BackendError
from nse.ops.cpu.library import load_kernel

IMPORTED_BY = os.getpid()
NO_MEMORY = "the CPU kernel has no memory or threads left: use smaller batches"
STATES = ("read_h", "read_c", "write_h", "write_c")
SIZES = ("B", "T", "k", "layers", "memories", "S", "threads", "folded", "keep", "half")
POINTERS = (
    *("lengths", "slot_sizes", "slot_lengths", "weights", "d_weights", "packed", "x", "mask", "slots"),
    *(*STATES, "kept", "outputs", "memory", "keys", *(f"{state}_end" for state in STATES)),
    *("d_outputs", "d_memory", "d_keys", *(f"d_{state}_end" for state in STATES)),
    *("d_x", "d_slots", *(f"d_{state}" for state in STATES), "run_openmp", "count_openmp_threads"),
)


class Call(ctypes.Structure):
    """Arguments of the kernel: the fields of `Call` in kernel.cpp, in the same order."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in POINTERS),
    )


def set_pointers(call: Call, **tensors: Tensor | None) -> None:
    """Point fields of the call to tensors, or to nothing."""
    for name, tensor in tensors.items():
        setattr(call, name, None if tensor is None else tensor.data_ptr())


def make_pointers(tensors: Sequence[Tensor]) -> Any:
    """Make an array of the tensors' addresses."""
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def count_numbers(name: str, call: Call) -> int:
    """Count the numbers of a buffer, with a function of the kernel."""
    function = load_kernel().get(name)
    function.restype = ctypes.c_int64
    return int(function(ctypes.byref(call)))


def run_kernel(name: str, call: Call) -> None:
    """Run a function of the kernel; other Python threads go on meanwhile."""
    call.run_openmp, call.count_openmp_threads = find_openmp(os.getpid())
    if load_kernel().get(name)(ctypes.byref(call)):
        raise BackendError(NO_MEMORY)


def allocate(count: int) -> Tensor:
    """Allocate numbers in a block that the kernel keeps for later calls once the tensor is gone."""
    kernel = load_kernel()
    make, get_numbers, release = (kernel.get(name) for name in ("allocate", "get_numbers", "release"))
    make.restype = get_numbers.restype = ctypes.c_void_p
    block = make(ctypes.c_int64(count))
    if block is None:
        raise BackendError(NO_MEMORY)
    numbers = (ctypes.c_float * count).from_address(get_numbers(ctypes.c_void_p(block)))
    weakref.finalize(numbers, release, ctypes.c_void_p(block)).atexit = False
    return torch.frombuffer(numbers, dtype=torch.float32)


def supports_half() -> bool:
    """Return whether the CPU multiplies bfloat16."""
    return bool(load_kernel().get("supports_half")())


@cache
def find_openmp(process: int) -> tuple[int | None, int | None]:
    """Find PyTorch's OpenMP runtime; not in a forked process, where it would wait forever."""
    if process != IMPORTED_BY:
        return None, None
    try:
        everything = ctypes.CDLL(None)
        functions = everything.GOMP_parallel, everything.omp_get_num_threads
    except (AttributeError, OSError, TypeError):
        return None, None
    run, count = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    return run, count
