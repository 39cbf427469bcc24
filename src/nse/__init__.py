"""Neural Semantic Encoders: a memory-augmented recurrent encoder for text."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before PyTorch is imported, whose OpenMP reads it once: how often a thread looks whether the others are done
# before it sleeps. The default, 300,000 times, takes milliseconds from whoever else needs the core, often
# the thread that is waited for; so beside a busy neighbour training fell to a tenth of its speed.
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


HOMES = {
    "NSE": "nse.nn.encoder",
    "Encoding": "nse.nn.encoder",
    "State": "nse.ops.types",
    "Memory": "nse.ops.types",
    "Model": "nse.inference.model",
    "load": "nse.inference.folder",
}
"""Where the names are that need PyTorch, which takes most of a second to import."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in HOMES:
        raise AttributeError(f"module 'nse' has no attribute {name!r}")
    value = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value
