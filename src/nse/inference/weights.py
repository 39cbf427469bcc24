"""The weights of a model as one safetensors file: what is in it, how small, and strictly read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nse.bounds import open_regular, read_bounded, shorten
from nse.errors import ModelError
from nse.inference.checksums import Checksums

VECTORS, SCALE = "embedding.weight", "embedding.weight.scale"
"""The tensor of the words' vectors, and what its rows are multiplied by where it is stored as int8."""

CHECKSUM = "vocabulary"
"""The key of the file's metadata that holds the vocabulary's checksum. One key: several have no order."""

AGAIN = "get the model folder again, whole"

LARGEST = 1 << 34
"""Bytes that are read of a file of weights: 16 GiB; five million words of 600 numbers each need 11."""

MANY = 20
"""So many names are listed in an error; the rest is counted."""

DTYPES: dict[torch.dtype, str] = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.bool: "BOOL",
}
"""How safetensors names what a model may be stored as."""

DRAWING = {nn.init.normal_, nn.init.uniform_, Tensor.normal_, Tensor.uniform_}
"""How a tensor is filled with random numbers."""


class Stored(NamedTuple):
    """How one tensor lies in the file."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Precision(NamedTuple):
    """How weights and the words' vectors are stored: names of dtypes, int8 for vectors alone."""

    weights: str
    vectors: str

    def of(self, name: str, tensor: Tensor) -> torch.dtype:
        """How a tensor is stored; whole numbers stay what they are."""
        stored: torch.dtype = getattr(torch, self.vectors if name == VECTORS else self.weights)
        return stored if tensor.is_floating_point() else tensor.dtype


def layout(state: Mapping[str, Tensor], precision: Precision) -> dict[str, Stored]:
    """Every tensor that the file of a model with these weights holds; they may be on the meta device."""
    stored = {
        name: Stored(DTYPES[precision.of(name, tensor)], tuple(tensor.shape))
        for name, tensor in state.items()
    }
    if VECTORS in stored and precision.vectors == "int8":
        stored[SCALE] = Stored("F32", stored[VECTORS].shape[:1])
    return stored


def written(state: Mapping[str, Tensor], precision: Precision, checksum: str) -> bytes:
    """The file of these weights, and of no others than finite ones."""
    # Cloned, because on a GPU an LSTM's weights are views of one block, which safetensors refuses.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    refuse_non_finite("the weights", tensors)
    for name, tensor in list(tensors.items()):
        if precision.of(name, tensor) == torch.int8 != tensor.dtype:
            tensors[name], tensors[SCALE] = as_bytes(tensor.float())
        else:
            tensors[name] = tensor.to(precision.of(name, tensor))
    refuse_non_finite(f"the weights as {precision.weights}", tensors)
    return save(tensors, {CHECKSUM: checksum})


def as_bytes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [V, d] as int8 and one scale [V] each: the largest number of a row becomes 127."""
    scale = rows.abs().amax(dim=1, keepdim=True) / 127
    small = (rows / scale.where(scale > 0, 1)).round().clamp(-127, 127)
    return small.to(torch.int8), scale.squeeze(1)


def read(file: Path, expected: Mapping[str, Stored], checksum: str, sums: Checksums) -> dict[str, Tensor]:
    """The weights in a file, if they are exactly the expected ones and finite.

    Its head is compared with what is expected before anything else is read.

    Args:
        file: The safetensors file.
        expected: What must be in it; see `layout`.
        checksum: Of the vocabulary that it must have been saved with.
        sums: Of the files of its folder.

    Returns:
        The weights as float32, in memory of their own.
    """
    with translate_errors(file), open_regular(file) as handle:
        refuse_pickle(file, handle.read(9) or b"")
        if os.fstat(handle.fileno()).st_size > LARGEST:
            raise ModelError(f"{file} cannot be read: longer than {LARGEST:,} bytes")
        with safe_open(file, framework="pt") as stored:
            slices = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118
            layouts = {name: Stored(s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
            if mistakes := differences(expected, layouts):
                raise ModelError(
                    f"{file} does not fit the configuration and vocabulary beside it: {mistakes}"
                )
            if (stored.metadata() or {}).get(CHECKSUM) != checksum:
                raise ModelError(
                    f"{file}: the vocabulary beside it is not the one it was saved with; {AGAIN}"
                )
            handle.seek(0)
            sums.verify(file.name, handle)
            tensors = {name: stored.get_tensor(name) for name in layouts}
        refuse_non_finite(str(file), tensors)
        if SCALE in tensors:
            tensors[VECTORS] = tensors[VECTORS] * tensors.pop(SCALE)[:, None]
            refuse_non_finite(str(file), {VECTORS: tensors[VECTORS]})
        return {name: exact(tensor) for name, tensor in tensors.items()}


def differences(expected: Mapping[str, Stored], found: Mapping[str, Stored]) -> str:
    """What is missing, what is too much and what differs, by name; nothing where all is as expected."""
    both = expected.keys() & found.keys()
    wrong = [f"{n}: expected {expected[n]}, found {found[n]}" for n in both if expected[n] != found[n]]
    groups = {
        "missing ": expected.keys() - found.keys(),
        "unexpected ": found.keys() - expected.keys(),
        "": wrong,
    }
    return "; ".join(f"{title}{listed(names)}" for title, names in groups.items() if names)


def listed(names: Iterable[str]) -> str:
    """Names in a line, in their order."""
    every = sorted(names)
    more = f" and {len(every) - MANY} more" if len(every) > MANY else ""
    return ", ".join(shorten(name, 200) for name in every[:MANY]) + more


def refuse_pickle(file: Path, start: bytes) -> None:
    """Say what it is where a pickle has taken the name; nothing but its first bytes is read."""
    if start[8:] == b"{":  # safetensors: the size of its head comes first, and may begin as a pickle does
        return
    if start[:1] == b"\x80" or start[:4] == b"PK\x03\x04":  # a pickle, or the archive that torch.save writes
        raise ModelError(
            f"{file} is a pickle or a .pt file, not safetensors: opening it could run code, so it never is; "
            "get the model as safetensors, or save it again with nse.inference.folder.save where it was made"
        )


def refuse_non_finite(what: str, tensors: Mapping[str, Tensor]) -> None:
    """Name every tensor that holds NaN or infinity."""
    bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not finite(tensor)]
    if bad:
        raise ModelError(f"{what}: NaN or infinity in {listed(bad)}")


def finite(tensor: Tensor) -> bool:
    """Whether there is neither NaN nor infinity in it: either would be its least or its largest number."""
    return not tensor.numel() or all(math.isfinite(float(end)) for end in tensor.aminmax())


def content(file: Path, most: int) -> bytes:
    """The bytes of a file of a model folder, which must be a regular one of at most so many."""
    with translate_errors(file):
        return read_bounded(file, most)


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Turn what is raised inside, where a file cannot be read, into a `ModelError`."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{file} is missing; {AGAIN}") from None
    except SafetensorError as error:
        raise ModelError(f"{file} is not a whole safetensors file ({shorten(error)}); {AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):  # as PyTorch says it
            raise
        raise ModelError(f"{file} cannot be read: there is not enough memory for it") from None


def exact(tensor: Tensor) -> Tensor:
    """A tensor of a file as float32, in memory of its own: of the file's, products round otherwise."""
    return tensor.to(torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)


class Undrawn(TorchFunctionMode):
    """While it lasts, no weight is drawn: those of a file take its place, and drawing costs a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Leave a tensor as it is where random numbers were to fill it."""
        if func in DRAWING:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
