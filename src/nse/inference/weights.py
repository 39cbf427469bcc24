"""The weights of a model as one safetensors file: what is in it, how small, and strictly read."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nse.errors import ModelError, shorten
from nse.files import open_regular
from nse.inference.checksums import AGAIN, Checksums, translate_errors
from nse.nn.text_model import rename_old_keys

if TYPE_CHECKING:
    from nse.inference.folder import ModelConfig

VECTORS, SCALE = "embedding.weight", "embedding.weight.scale"  # which int8 rows are multiplied by
CHECKSUM = "vocabulary"  # the one key of the file's metadata, the vocabulary's: several have no order
LARGEST = 1 << 34  # bytes of a file of weights: five million words of 600 numbers each need 11 GiB
MANY = 20  # names or mistakes are listed in an error; the rest is counted
DRAWING = {nn.init.normal_, nn.init.uniform_, Tensor.normal_, Tensor.uniform_}


def choose_dtype(name: str, tensor: Tensor, config: ModelConfig) -> torch.dtype:
    """Choose how a tensor is stored; whole numbers stay what they are."""
    stored: torch.dtype = getattr(torch, config.vectors if name == VECTORS else config.weights)
    return stored if tensor.is_floating_point() else tensor.dtype


def write_weights(state: Mapping[str, Tensor], config: ModelConfig, checksum: str) -> bytes:
    """Write the file of these weights, which must be finite, and of the checksum of their vocabulary."""
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
    """Load weights as float32; they must be exactly the module's, finite, and saved with this vocabulary.

    The file's head is compared with the module before anything else is read.
    """
    with translate_errors(file), open_regular(file) as handle:
        refuse_pickle(file, handle.read(9) or b"")
        if os.fstat(handle.fileno()).st_size > LARGEST:
            raise ModelError(f"{file} cannot be read: longer than {LARGEST:,} bytes")
        with safe_open(file, framework="pt") as stored:
            stored_names = rename_old_keys({name: name for name in stored.keys()})  # noqa: SIM118
            slices = {name: stored.get_slice(stored_name) for name, stored_name in stored_names.items()}
            layout = {name: f"{each.get_dtype()} {each.get_shape()}" for name, each in slices.items()}
            if mistakes := compare_layouts(describe_layout(module.state_dict(), config), layout):
                what = "does not fit the configuration and vocabulary beside it"
                raise ModelError(f"{file} {what}: {mistakes}")
            if (stored.metadata() or {}).get(CHECKSUM) != checksum:
                why = "the vocabulary beside it is not the one it was saved with"
                raise ModelError(f"{file}: {why}; {AGAIN}")
            handle.seek(0)
            sums.verify(file.name, hashlib.file_digest(handle, "sha256").hexdigest())
            tensors = {name: stored.get_tensor(stored_names[name]) for name in layout}
        refuse_non_finite(str(file), tensors)
        if SCALE in tensors:
            tensors[VECTORS] = tensors[VECTORS] * tensors.pop(SCALE)[:, None]
            refuse_non_finite(str(file), {VECTORS: tensors[VECTORS]})
        for name, tensor in tensors.items():  # copied: in the memory of a file, products round otherwise
            dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
            tensors[name] = tensor.to(dtype, copy=True)
        module.load_state_dict(tensors, assign=True)


def describe_layout(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, str]:
    """Describe each tensor of a file of these weights, as "F32 [3, 4]"; they may be on the meta device."""
    layout = {}
    for name, tensor in state.items():
        dtype = choose_dtype(name, tensor, config)
        layout[name] = f"{'F' if dtype.is_floating_point else 'I'}{8 * dtype.itemsize} {list(tensor.shape)}"
        if name == VECTORS and dtype == torch.int8:
            layout[SCALE] = f"F32 {list(tensor.shape[:1])}"
    return layout


def compare_layouts(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Say by name what is missing, what is too much and what differs; nothing where all is as expected."""
    both = expected.keys() & found.keys()
    wrong = [f"{n}: expected {expected[n]}, found {found[n]}" for n in both if expected[n] != found[n]]
    missing, more = expected.keys() - found.keys(), found.keys() - expected.keys()
    groups = {"missing ": missing, "unexpected ": more, "": wrong}
    return "; ".join(f"{title}{list_names(names)}" for title, names in groups.items() if names)


def list_names(names: Iterable[str]) -> str:
    """List names in a line, in their order."""
    return ", ".join(shorten(name, 200) for name in keep_first(sorted(names)))


def keep_first(items: list[str]) -> list[str]:
    """Return the first items of a list, and how many more there are."""
    return [*items[:MANY], *([f"and {len(items) - MANY} more"] if len(items) > MANY else [])]


def refuse_pickle(file: Path, start: bytes) -> None:
    """Say what it is where a pickle has taken the name; nothing but its first bytes is read."""
    if start[8:] == b"{":  # safetensors: the size of its head comes first, and may begin as a pickle does
        return
    if start[:1] == b"\x80" or start[:4] == b"PK\x03\x04":  # a pickle, or the archive that torch.save writes
        advice = "get the model as safetensors, or save it again with nse.inference.folder.save"
        why = "is a pickle or a .pt file, not safetensors: opening it could run code, so it never is"
        raise ModelError(f"{file} {why}; {advice} where it was made")


def refuse_non_finite(what: str, tensors: Mapping[str, Tensor]) -> None:
    """Name every tensor that holds NaN or infinity: either would be its least or its largest number."""
    ends = {n: each.aminmax() for n, each in tensors.items() if each.is_floating_point() and each.numel()}
    if bad := [name for name, each in ends.items() if not all(math.isfinite(float(end)) for end in each)]:
        raise ModelError(f"{what}: NaN or infinity in {list_names(bad)}")


class Undrawn(TorchFunctionMode):
    """While it lasts, no weight is drawn: those of a file take its place, and drawing costs a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leave a tensor as it is where random numbers were to fill it."""
        if func in DRAWING:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
