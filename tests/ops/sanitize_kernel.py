"""Run the CPU kernel with ThreadSanitizer, and its tests with those of addresses and undefined behaviour.

    python tests/ops/sanitize_kernel.py            # all of them, without the slow ones
    python tests/ops/sanitize_kernel.py WORDS      # other words for pytest

The kernel is compiled into a temporary folder. ThreadSanitizer cannot watch Python: it watches
drive_kernel.cpp. The first error ends the run.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
FLAGS += ["-fno-omit-frame-pointer", "-g", "-O1"]
TESTS = [f"tests/ops/test_cpu{part}.py" for part in ("", "_bits", "_functions", "_operator", "_weights")]
WORDS = ["-m", "not slow", "-p", "no:cacheprovider", "-q", "--timeout", "1800"]


def main():
    """Compile, run, and end as pytest ends."""
    sys.path.insert(0, str(ROOT))
    import hatch_build

    compiler = hatch_build.find_compilers()[0]
    with TemporaryDirectory() as folder:
        check_threads(compiler, Path(folder) / "drive", hatch_build.get_instruction_sets())
        library = Path(folder) / hatch_build.LIBRARY.name
        if reason := hatch_build.compile_kernel(library, FLAGS):
            sys.exit(f"the kernel cannot be compiled with sanitizers: {reason}")
        environment = {
            **os.environ,
            "NSE_TEST_KERNEL": str(library),
            "LD_PRELOAD": find_runtime(compiler),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python and PyTorch keep what they allocate
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        command = [sys.executable, "-m", "pytest", "-s", *(sys.argv[1:] or [*TESTS, *WORDS])]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment).returncode)


def check_threads(compiler, program, instruction_sets):
    """Compile the driver for an instruction set that most CPUs have, and run it."""
    isa = "avx2" if "avx2" in instruction_sets else next(iter(instruction_sets))
    flags = ["-std=c++17", "-g", "-O1", "-pthread", "-ffp-contract=off", "-fsanitize=thread", f"-DISA={isa}"]
    source = ROOT / "tests" / "ops" / "drive_kernel.cpp"
    subprocess.run([*compiler, *flags, *instruction_sets[isa], source, "-o", program], check=True)
    for threads in ("2", "4", "7"):
        subprocess.run([program, threads], check=True)


def find_runtime(compiler):
    """Find the libraries that must be loaded before all others; the second one throws exceptions."""
    found = []
    for names in (["libasan.so", "libclang_rt.asan-x86_64.so"], ["libstdc++.so.6"]):
        for name in names:
            command = [*compiler, f"-print-file-name={name}"]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            found += [answer] if Path(answer).is_absolute() else []
    if not found:
        sys.exit("the compiler has no AddressSanitizer")
    return " ".join(found)


if __name__ == "__main__":
    main()
