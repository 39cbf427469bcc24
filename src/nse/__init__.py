"""Neural Semantic Encoders: a memory-augmented recurrent encoder for text."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# How often an OpenMP thread polls before it sleeps; read when PyTorch is imported. The default, 300,000,
# takes milliseconds from the threads it waits for: on a busy machine training fell to a tenth of its speed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from nse.errors import BackendError, ConfigError, DataError, InputError, ModelError, NSEError, RunError

if TYPE_CHECKING:
    from nse.inference.folder import load
    from nse.inference.model import Model
    from nse.nn.encoder import NSE, Encoding
    from nse.ops.types import Memory, State

__version__ = "0.1.0"

__all__ = ["NSE", "Encoding", "Memory", "Model", "State", "__version__", "load"]
__all__ += ["BackendError", "ConfigError", "DataError", "InputError", "ModelError", "NSEError", "RunError"]


MODULES = {
    "NSE": "nse.nn.encoder",
    "Encoding": "nse.nn.encoder",
    "State": "nse.ops.types",
    "Memory": "nse.ops.types",
    "Model": "nse.inference.model",
    "load": "nse.inference.folder",
}
"""Modules of the names that need PyTorch, which takes most of a second to import."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in MODULES:
        raise AttributeError(f"module 'nse' has no attribute {name!r}")
    value = getattr(import_module(MODULES[name]), name)
    globals()[name] = value
    return value
