"""Neural Semantic Encoders: a memory-augmented recurrent encoder for text."""

from nse.errors import BackendError, ConfigError, DataError, InputError, ModelError, NSEError, RunError
from nse.nn.encoder import NSE, Encoding, State
from nse.ops.parts import Memory

__version__ = "0.1.0"

__all__ = [
    "NSE",
    "BackendError",
    "ConfigError",
    "DataError",
    "Encoding",
    "InputError",
    "Memory",
    "ModelError",
    "NSEError",
    "RunError",
    "State",
    "__version__",
]
