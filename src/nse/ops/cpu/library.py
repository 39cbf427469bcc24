"""Load the compiled kernel, and choose the instruction set that it runs with.

The library has each function once per instruction set: `nse_forward_avx2` beside `nse_forward_avx512`. The
best one that this CPU has is chosen, unless the environment variable NSE_CPU_ISA names one, or "none".
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nse.errors import BackendError

log = logging.getLogger(__name__)

PATH = Path(__file__).with_name("libnse_cpu.dylib" if sys.platform == "darwin" else "libnse_cpu.so")
INSTALL_AGAIN = "install nse again where there is a C++ compiler"


class Kernel(NamedTuple):
    """Compiled kernel.

    Attributes:
        library: The library.
        isa: Instruction set that its functions run with.
    """

    library: ctypes.CDLL
    isa: str

    def get(self, name: str) -> Any:
        """Return the function `nse_<name>_<isa>`, always the same object."""
        return getattr(self.library, f"nse_{name}_{self.isa}")


class Opened(NamedTuple):
    """Library that was opened, or not.

    Attributes:
        library: The library; `None` if it cannot be used.
        isas: Instruction sets that it has and this CPU too, the best one first.
        reason: Why it cannot be used.
    """

    library: ctypes.CDLL | None
    isas: tuple[str, ...] = ()
    reason: str = ""


def load_kernel() -> Kernel:
    """Load the kernel.

    Raises:
        BackendError: It cannot run here, or NSE_CPU_ISA names an instruction set that is not there.
    """
    kernel = choose_kernel(PATH, os.environ.get("NSE_CPU_ISA", ""))
    if isinstance(kernel, str):
        raise BackendError(f"the CPU kernel cannot run here: {kernel}")
    return kernel


def explain_no_kernel() -> str | None:
    """Return why the kernel cannot run here; `None` if it can."""
    kernel = choose_kernel(PATH, os.environ.get("NSE_CPU_ISA", ""))
    return kernel if isinstance(kernel, str) else None


def list_isas() -> list[str]:
    """List the instruction sets that the kernel can run with here, the best one first."""
    return list(open_library(PATH).isas)


@cache
def choose_kernel(path: Path, wanted: str) -> Kernel | str:
    """Return the kernel with the wanted instruction set ("" for the best one), or why there is none."""
    if wanted == "none":
        return "NSE_CPU_ISA=none turns it off"
    library, isas, reason = open_library(path)
    if library is None:
        log_no_kernel(reason)
        return reason
    if wanted and wanted not in isas:
        raise BackendError(f"NSE_CPU_ISA={wanted!r} cannot run here: there are {', '.join(isas)}, none")
    return Kernel(library, wanted or isas[0])


@cache
def open_library(path: Path) -> Opened:
    """Open a library, and ask which of its instruction sets this CPU has."""
    if not path.exists():
        return Opened(None, reason=f"it was not compiled; {INSTALL_AGAIN}")
    try:
        library = ctypes.CDLL(str(path))
        library.nse_describe_build.restype = ctypes.c_char_p
        checksum, _, *isas = library.nse_describe_build().decode().split()
        runnable = tuple(isa for isa in isas if getattr(library, f"nse_supports_{isa}")())
    except (OSError, AttributeError) as error:
        return Opened(None, reason=f"{path} cannot be loaded ({error}); {INSTALL_AGAIN}")
    source = path.with_name("kernel.cpp")  # a checkout may have another one by now
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != checksum:
        return Opened(None, reason=f"it was compiled from another kernel.cpp; {INSTALL_AGAIN}")
    if not runnable:
        return Opened(None, reason=f"this CPU has none of {', '.join(isas)}")
    return Opened(library, runnable)


_logged: dict[Path, object] = {}


def log_no_kernel(reason: str) -> None:
    """Log once that PyTorch computes instead of the kernel."""
    token = object()
    if _logged.setdefault(PATH, token) is token:  # of several threads, one is first
        log.info("the CPU kernel cannot run: %s. PyTorch computes instead, more slowly", reason)
