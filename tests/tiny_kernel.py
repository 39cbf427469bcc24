"""A kernel of three instruction sets that every compiler knows, of which no CPU has the first."""

import pytest

import hatch_build

SOURCE = """
#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define EXPORT extern "C" __attribute__((visibility("default")))
#ifndef ADDED
#define ADDED 0
#endif
enum { best = 0, middle = 1, plain = 2 };
EXPORT int NAME(nse_supports_, ISA)() { return ISA; }
EXPORT int NAME(nse_forward_, ISA)(int x) { return 10 * x + ISA + ADDED; }
"""

needs_compiler = pytest.mark.skipif(not hatch_build.find_compilers(), reason="there is no C++ compiler")


def compile_in(folder, patch, extra_flags=(), best=(), only=()):
    """Compile it into a folder; `best` are the flags of the best instruction set."""
    source, library = folder / "tiny.cpp", folder / hatch_build.LIBRARY.name
    source.write_text(SOURCE)
    sets = {"best": best, "middle": (), "plain": ()}
    patch.setattr(hatch_build, "get_instruction_sets", lambda: sets)
    reason = hatch_build.compile_kernel(library, extra_flags, source, only)
    return reason or library
