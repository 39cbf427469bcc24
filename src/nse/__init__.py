"""Neural Semantic Encoders: a memory-augmented recurrent encoder for text."""

import os
from typing import TYPE_CHECKING, Any

# Before PyTorch is imported, whose OpenMP reads it once: how often a thread looks whether the others are done
# before it sleeps. The default, 300,000 times, takes milliseconds from whoever else needs the core, often
# the thread that is waited for; so beside a busy neighbour training fell to a tenth of its speed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from nse.errors import BackendError, ConfigError, DataError, InputError, ModelError, NSEError, RunError
from nse.nn.encoder import NSE, Encoding, State
from nse.ops.types import Memory

if TYPE_CHECKING:
    from nse.inference.model import Model, load

__version__ = "0.1.0"

__all__ = [
    "NSE",
    "BackendError",
    "ConfigError",
    "DataError",
    "Encoding",
    "InputError",
    "Memory",
    "Model",
    "ModelError",
    "NSEError",
    "RunError",
    "State",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """What trained models need is imported when it is asked for: the encoder alone is there at once."""
    if name in ("Model", "load"):
        from nse.inference import model as loaded

        return getattr(loaded, name)
    raise AttributeError(f"module 'nse' has no attribute {name!r}")
