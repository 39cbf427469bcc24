"""Neural Semantic Encoders: a memory-augmented recurrent encoder for text."""

from nse.errors import BackendError, ConfigError, InputError, NSEError, RunError
from nse.nn.encoder import NSE, Encoding, State
from nse.ops.parts import Memory

__version__ = "0.1.0"

__all__ = [
    "NSE",
    "BackendError",
    "ConfigError",
    "Encoding",
    "InputError",
    "Memory",
    "NSEError",
    "RunError",
    "State",
    "__version__",
]
