"""Compile the CPU kernel when the package is installed or built; hatchling calls `KernelBuildHook`.

    python hatch_build.py    # compile in place, unless the library is of this source

Without a C++ compiler, or with NSE_BUILD_KERNEL=0, the package is built without the kernel.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # run by itself
    BuildHookInterface = object

FOLDER = Path(__file__).parent / "src" / "nse" / "ops" / "cpu"
SOURCE = FOLDER / "kernel.cpp"
LIBRARY = FOLDER / ("libnse_cpu.dylib" if sys.platform == "darwin" else "libnse_cpu.so")

X86 = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
    "avx2": ("-mavx2", "-mfma"),
    "sse2": (),  # every x86-64 has it
}
INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": X86,
    "amd64": X86,
    "aarch64": {"neon": ()},
    "arm64": {"neon": ()},
}
"""Flags of each instruction set by machine, the best one first."""

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
FLAGS += ("-fvisibility=hidden", "-pthread")
LINK = ("-shared", "-pthread")
STATIC = ("-static-libstdc++", "-Wl,--gc-sections")
"""Take in what is needed of the C++ library, so that a wheel runs where that is older; not of libgcc, whose
static form needs a newer system, while PyTorch needs the shared one anyway."""
EXPORTS = "{ global: nse_*; local: *; };"
"""Version script of the linker: functions of the standard library stay inside."""
DESCRIPTION = """
extern "C" __attribute__((visibility("default"))) const char *nse_describe_build() {{ return "{text}"; }}
"""


class KernelBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Compile the kernel in place, and put it into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before hatchling collects the files of a wheel or of an editable install."""
        if update_library() is None and version == "standard":
            from packaging.tags import platform_tags

            names = [name for name in platform_tags() if not name.startswith(("manylinux", "musllinux"))]
            build_data["artifacts"].append(LIBRARY.relative_to(Path(__file__).parent).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{names[0]}"


def update_library() -> str | None:
    """Compile the library in place unless it is up to date; print and return why it could not be compiled."""
    if os.environ.get("NSE_BUILD_KERNEL") == "0":
        reason: str | None = "NSE_BUILD_KERNEL=0"
    elif is_up_to_date():
        return None
    else:
        started = time.perf_counter()
        reason = compile_kernel(LIBRARY, source=SOURCE)
        if reason is not None:
            LIBRARY.unlink(missing_ok=True)  # compiled from an earlier source
    if reason is not None:
        print(f"nse: no CPU kernel, PyTorch will compute instead: {reason}", file=sys.stderr)
    else:
        print(f"nse: CPU kernel compiled in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return reason


def is_up_to_date() -> bool:
    """Return whether the library was compiled from this source with these flags."""
    if not (SOURCE.is_file() and LIBRARY.is_file()):
        return False
    return compute_fingerprint(SOURCE).encode() in LIBRARY.read_bytes()


def compute_fingerprint(source: Path, extra_flags: Sequence[str] = ()) -> str:
    """Compute the checksum of a source, and one of how it is compiled."""
    options = (get_instruction_sets(), FLAGS, LINK, STATIC, EXPORTS, tuple(extra_flags))
    sums = [hashlib.sha256(data).hexdigest() for data in (source.read_bytes(), repr(options).encode())]
    return " ".join(sums)


def get_instruction_sets() -> dict[str, tuple[str, ...]]:
    """Return the flags of each instruction set of this machine, the best one first."""
    return INSTRUCTION_SETS.get(platform.machine().lower(), {"baseline": ()})


def compile_kernel(
    out: Path, extra_flags: Sequence[str] = (), source: Path = SOURCE, only: Sequence[str] = ()
) -> str | None:
    """Compile a library with the first compiler that can; return why none can.

    Args:
        out: The library to write, atomically.
        extra_flags: Flags added for compiling and linking, such as `-fsanitize=address`.
        source: Source of the kernel.
        only: Instruction sets to compile; without any, all of this machine.
    """
    if sys.platform == "win32":
        return "it is not compiled on Windows"
    if not source.is_file():
        return f"{source} is missing"
    if unknown := set(only) - get_instruction_sets().keys():
        return f"this machine has no {', '.join(sorted(unknown))}, but {', '.join(get_instruction_sets())}"
    compilers = find_compilers()
    if not compilers:
        return "there is no C++ compiler (CXX, c++, g++ and clang++ were tried)"
    reasons = []
    for compiler in compilers:
        try:
            build_library(compiler, out, extra_flags, source, only)
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{shlex.join(compiler)}: {shorten_error(error)}")
        else:
            return None
    return "; ".join(reasons)


def find_compilers() -> list[list[str]]:
    """Find the commands of compilers; two names of one program count once."""
    commands = [shlex.split(os.environ.get("CXX", "")), ["c++"], ["g++"], ["clang++"]]
    found: dict[tuple[str, ...], list[str]] = {}
    for command in filter(None, commands):
        if path := shutil.which(command[0]):
            found.setdefault((os.path.realpath(path), *command[1:]), command)
    return list(found.values())


def build_library(
    compiler: list[str], out: Path, extra_flags: Sequence[str], source: Path, only: Sequence[str]
) -> None:
    """Compile the source for each instruction set that the compiler knows, and link the objects."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)

        def compile_object(name: str, flags: Sequence[str]) -> subprocess.SubprocessError | None:
            make = [*flags, *extra_flags, f"-DISA={name}", "-c", str(source), "-o", str(folder / f"{name}.o")]
            try:
                run([*compiler, *FLAGS, *make])
            except subprocess.SubprocessError as error:
                return error
            return None

        sets = {name: flags for name, flags in get_instruction_sets().items() if not only or name in only}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            errors = dict(zip(sets, pool.map(compile_object, sets, sets.values()), strict=True))
        names = [name for name, error in errors.items() if error is None]
        for name, error in errors.items():
            if error is not None and not names:
                raise error
            if error is not None:
                print(f"nse: CPU kernel without {name}: {shorten_error(error)}", file=sys.stderr)
        text = " ".join([compute_fingerprint(source, extra_flags), *names])
        (folder / "description.cpp").write_text(DESCRIPTION.format(text=text), "utf-8")
        # The linker keeps the first of several equal functions (inline ones of the standard library): those
        # of the most general instruction set, which run on every machine, must come first.
        objects = [str(folder / "description.cpp"), *(str(folder / f"{name}.o") for name in reversed(names))]
        (folder / "exports").write_text(EXPORTS)
        preferred = [*STATIC, f"-Wl,--version-script={folder / 'exports'}"]
        command = [*compiler, "-fPIC", *extra_flags, *objects, *LINK]
        link_library(command, preferred, out, check=not extra_flags)


def link_library(command: list[str], preferred: list[str], out: Path, check: bool) -> None:
    """Link objects into a library, with the preferred options if they work, and try to load it."""
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        try:
            run([*command, *preferred, "-o", str(part)])
        except subprocess.SubprocessError:
            run([*command, "-o", str(part)])
        if check:
            ctypes.CDLL(str(part))
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)


def run(command: list[str]) -> None:
    """Run a compiler."""
    environment = {**os.environ, "LC_ALL": "C"}
    subprocess.run(command, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def shorten_error(error: Exception) -> str:
    """Return the first error that a compiler printed, or the last line."""
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    lines = [line for line in error.stderr.decode("utf-8", "replace").split("\n") if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors[:1] or lines[-1:] or [f"exit status {error.returncode}"])[0].strip()


if __name__ == "__main__":
    update_library()
