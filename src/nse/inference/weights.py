"""Write and read the files of a model folder: weights as safetensors, and the checksums of all files."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nse.errors import ModelError, shorten
from nse.files import open_regular, read_bounded
from nse.nn.text_model import rename_old_keys

if TYPE_CHECKING:
    from nse.inference.folder import ModelConfig

SUMS = "SHA256SUMS"  # the usual name, as `sha256sum -c` reads it
MAX_SUMS_BYTES = 1 << 16  # it has four lines
SUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
GET_AGAIN = "get the whole model folder again"

VECTORS, SCALE = "embedding.weight", "embedding.weight.scale"  # int8 rows are multiplied by their scale
CHECKSUM = "vocabulary"  # the only key of the file's metadata, because several keys have no order
MAX_WEIGHTS_BYTES = 1 << 34  # five million words of 600 numbers each need 11 GiB
MAX_LISTED = 20  # names or mistakes in an error message
RANDOM_INITS = {nn.init.normal_, nn.init.uniform_, Tensor.normal_, Tensor.uniform_}

log = logging.getLogger(__name__)


def compute_digest(content: bytes) -> str:
    """Compute the SHA-256 of the content of a file."""
    return hashlib.sha256(content).hexdigest()


def write_sums(files: Mapping[str, bytes]) -> bytes:
    """Write the checksums of files, given by name, in the format of `sha256sum`."""
    return "".join(f"{compute_digest(content)}  {name}\n" for name, content in files.items()).encode()


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Raise a `ModelError` for any error of reading the file in the block."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{file} is missing; {GET_AGAIN}") from None
    except SafetensorError as error:
        raise ModelError(f"{file} is not a whole safetensors file ({shorten(error)}); {GET_AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}") from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):  # PyTorch's out of memory
            raise
        raise ModelError(f"{file} cannot be read: there is not enough memory for it") from None


class Checksums:
    """Checksums of a model folder. A folder without them logs a warning, and its files are not compared."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.sums: dict[str, str] | None = None
        with translate_errors(folder / SUMS), suppress(FileNotFoundError):
            lines = read_bounded(folder / SUMS, MAX_SUMS_BYTES).decode("utf-8", "replace").splitlines()
            self.sums = {match[2]: match[1].lower() for line in lines if (match := SUM_LINE.fullmatch(line))}
        if self.sums is None:
            command = f"sha256sum *.json *.safetensors *.txt > {SUMS}"
            log.warning(
                "%s has no %s to verify its files with; to make it, type there: %s", folder, SUMS, command
            )

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file of at most `max_bytes`, and verify its checksum."""
        with translate_errors(self.folder / name):
            content = read_bounded(self.folder / name, max_bytes)
        self.verify(name, compute_digest(content))
        return content

    def verify(self, name: str, digest: str) -> None:
        """Raise a `ModelError` if the digest of a file is not the saved one."""
        advice = f"{GET_AGAIN}, or delete {SUMS} if you changed it on purpose"
        if self.sums is not None and name not in self.sums:
            raise ModelError(f"{self.folder / SUMS} has no checksum of {name}; {advice}")
        if self.sums is not None and self.sums[name] != digest:
            raise ModelError(f"{self.folder / name} does not match its checksum in {SUMS}; {advice}")


def choose_dtype(name: str, tensor: Tensor, config: ModelConfig) -> torch.dtype:
    """Choose the type in which a tensor is stored; integers keep theirs."""
    stored: torch.dtype = getattr(torch, config.vectors if name == VECTORS else config.weights)
    return stored if tensor.is_floating_point() else tensor.dtype


def write_weights(state: Mapping[str, Tensor], config: ModelConfig, checksum: str) -> bytes:
    """Write weights as safetensors, with the checksum of their vocabulary; they must be finite."""
    # Cloned, because on a GPU an LSTM's weights are views of one block, which safetensors refuses.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    refuse_non_finite("the weights", tensors)
    for name, tensor in list(tensors.items()):
        dtype = choose_dtype(name, tensor, config)
        if dtype == torch.int8 != tensor.dtype:  # the largest number of a row becomes 127
            scale = tensor.float().abs().amax(dim=1, keepdim=True) / 127
            tensor = (tensor.float() / scale.where(scale > 0, 1)).round().clamp(-127, 127)
            tensors[SCALE] = scale.squeeze(1)
        tensors[name] = tensor.to(dtype)
    refuse_non_finite(f"the weights as {config.weights}", tensors)
    return save(tensors, {CHECKSUM: checksum})


def load_weights(module: nn.Module, file: Path, config: ModelConfig, checksum: str, sums: Checksums) -> None:
    """Load weights as float32; they must match the module, be finite, and belong to this vocabulary.

    The header of the file is compared with the module before any tensor is read.
    """
    with translate_errors(file), open_regular(file) as handle:
        refuse_pickle(file, handle.read(9) or b"")
        if os.fstat(handle.fileno()).st_size > MAX_WEIGHTS_BYTES:
            raise ModelError(f"{file} cannot be read: longer than {MAX_WEIGHTS_BYTES:,} bytes")
        with safe_open(file, framework="pt") as stored:
            stored_names = rename_old_keys({name: name for name in stored.keys()})  # noqa: SIM118
            slices = {name: stored.get_slice(stored_name) for name, stored_name in stored_names.items()}
            layout = {name: f"{part.get_dtype()} {part.get_shape()}" for name, part in slices.items()}
            if mistakes := compare_layouts(describe_layout(module.state_dict(), config), layout):
                what = "does not fit the configuration and vocabulary beside it"
                raise ModelError(f"{file} {what}: {mistakes}")
            if (stored.metadata() or {}).get(CHECKSUM) != checksum:
                why = "the vocabulary beside it is not the one it was saved with"
                raise ModelError(f"{file}: {why}; {GET_AGAIN}")
            handle.seek(0)
            sums.verify(file.name, hashlib.file_digest(handle, "sha256").hexdigest())
            tensors = {name: stored.get_tensor(stored_names[name]) for name in layout}
        refuse_non_finite(str(file), tensors)
        if SCALE in tensors:
            tensors[VECTORS] = tensors[VECTORS] * tensors.pop(SCALE)[:, None]
            refuse_non_finite(str(file), {VECTORS: tensors[VECTORS]})
        for name, tensor in tensors.items():  # copied: products round differently in memory-mapped tensors
            dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
            tensors[name] = tensor.to(dtype, copy=True)
        module.load_state_dict(tensors, assign=True)


def describe_layout(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, str]:
    """Describe the stored tensors as "F32 [3, 4]", by name; the weights may be on the meta device."""
    layout = {}
    for name, tensor in state.items():
        dtype = choose_dtype(name, tensor, config)
        layout[name] = f"{'F' if dtype.is_floating_point else 'I'}{8 * dtype.itemsize} {list(tensor.shape)}"
        if name == VECTORS and dtype == torch.int8:
            layout[SCALE] = f"F32 {list(tensor.shape[:1])}"
    return layout


def compare_layouts(expected: Mapping[str, str], actual: Mapping[str, str]) -> str:
    """List missing, unexpected and different tensors; "" if there are none."""
    both = expected.keys() & actual.keys()
    wrong = [f"{n}: expected {expected[n]}, found {actual[n]}" for n in both if expected[n] != actual[n]]
    missing, unexpected = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    groups = {"missing ": missing, "unexpected ": unexpected, "": wrong}
    return "; ".join(f"{title}{list_names(names)}" for title, names in groups.items() if names)


def list_names(names: Iterable[str]) -> str:
    """Join the first names in alphabetical order, and count the others."""
    return ", ".join(shorten(name, 200) for name in truncate(sorted(names)))


def truncate(items: list[str]) -> list[str]:
    """Return the first items, and how many more there are."""
    return [
        *items[:MAX_LISTED],
        *([f"and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []),
    ]


def refuse_pickle(file: Path, start: bytes) -> None:
    """Raise a `ModelError` if the first bytes of a file are those of a pickle."""
    if start[8:] == b"{":  # safetensors: the header's size comes first, and may begin as a pickle does
        return
    if start[:1] == b"\x80" or start[:4] == b"PK\x03\x04":  # a pickle, or the archive that torch.save writes
        advice = "get the model as safetensors, or save it again with nse.inference.folder.save"
        why = "is a pickle or a .pt file, not safetensors; it is not opened, because that could run code"
        raise ModelError(f"{file} {why}; {advice}")


def refuse_non_finite(what: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise a `ModelError` that names the tensors with NaN or infinity."""
    ends = {name: t.aminmax() for name, t in tensors.items() if t.is_floating_point() and t.numel()}
    if bad := [name for name, both in ends.items() if not all(math.isfinite(float(end)) for end in both)]:
        raise ModelError(f"{what}: NaN or infinity in {list_names(bad)}")


class SkipInit(TorchFunctionMode):
    """Context in which random initialization does nothing, because weights are loaded afterwards."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the tensor unchanged if it was to be filled with random numbers."""
        if func in RANDOM_INITS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
