"""Building and installing the package, with a C++ compiler and without one."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

import hatch_build
import tiny_kernel

ROOT = Path(__file__).parents[1]
KERNEL = Path("src/nse/ops/cpu/kernel.cpp")
LIBRARY = KERNEL.with_name(hatch_build.LIBRARY.name)
FILES = ("pyproject.toml", "hatch_build.py", ".gitignore", "README.md", "LICENSE")
IN_WHEEL = LIBRARY.relative_to("src").as_posix()
KERNEL_TEXT = tiny_kernel.SOURCE.replace("enum {", "enum { avx512, avx2, sse2, neon, baseline,")


@pytest.fixture
def tree(tmp_path):
    """A checkout with a small package."""
    tree = tmp_path / "tree"
    tree.joinpath(KERNEL).parent.mkdir(parents=True)
    tree.joinpath(KERNEL).write_text(KERNEL_TEXT)
    for name in (*FILES, "src/nse/__init__.py"):
        shutil.copy(ROOT / name, tree / name)
    return tree


@pytest.fixture
def broken_compilers(tmp_path):
    """An environment in which every compiler fails."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("c++", "g++", "clang++"):
        (folder / name).write_text("#!/bin/sh\necho 'kernel.cpp:1: error: no' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "CXX": ""}


def build(tree, target="wheel", **environment):
    """Build what hatchling calls a target; return the file and what was told."""
    out = tree.parent / "out"
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out]
    environment = {**os.environ, "CXX": "", "NSE_BUILD_KERNEL": "", **environment}
    answer = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    (file,) = out.iterdir()
    return file.rename(tree.parent / file.name), answer.stderr


def read_wheel(wheel):
    """Read the names of a wheel's files, and its WHEEL file."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        return names, archive.read(about).decode()


@tiny_kernel.needs_compiler
def test_a_wheel_has_the_library_and_the_tag_of_its_platform(tree):
    wheel, told = build(tree)
    names, about = read_wheel(wheel)
    assert IN_WHEEL in names
    assert wheel.name.startswith("neural_semantic_encoders-")
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    assert f"Tag: {'-'.join(wheel.stem.split('-')[2:])}\n" in about
    assert "Root-Is-Purelib: false" in about
    assert "CPU kernel compiled in" in told


@pytest.mark.parametrize("why", ["compilers fail", "no compiler", "turned off", "no source"])
def test_without_the_kernel_a_wheel_is_built_for_every_platform(tree, why, broken_compilers):
    environment, reason = {
        "compilers fail": (broken_compilers, "c++: kernel.cpp:1: error: no"),
        "no compiler": ({"PATH": str(tree)}, "there is no C++ compiler (CXX, "),
        "turned off": ({"NSE_BUILD_KERNEL": "0"}, "NSE_BUILD_KERNEL=0"),
        "no source": ({}, f"{tree / KERNEL} is missing"),
    }[why]
    if why == "no source":
        (tree / KERNEL).unlink()
    if why != "turned off":
        (tree / LIBRARY).write_text("of an earlier source")
    wheel, told = build(tree, **environment)
    names, about = read_wheel(wheel)
    assert IN_WHEEL not in names
    assert "nse/__init__.py" in names
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true" in about
    (line,) = (line for line in told.split("\n") if "CPU kernel" in line)
    assert line.startswith(f"nse: no CPU kernel, PyTorch will compute instead: {reason}")
    assert not (tree / LIBRARY).exists()  # or it would be loaded


@tiny_kernel.needs_compiler
def test_an_sdist_compiles_where_it_is_built(tree):
    build(tree)
    sdist, _ = build(tree, "sdist")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
        archive.extractall(tree.parent / "unpacked", filter="data")
    assert {"hatch_build.py", KERNEL.as_posix()} <= names
    assert LIBRARY.as_posix() not in names
    (unpacked,) = (tree.parent / "unpacked").iterdir()
    unpacked = unpacked.rename(tree.parent / "unpacked" / "tree")
    wheel, _ = build(unpacked)
    assert IN_WHEEL in read_wheel(wheel)[0]


@tiny_kernel.needs_compiler
def test_an_editable_install_compiles_in_place(tree):
    code = "import hatchling.build as b; b.build_editable('.')"
    subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, check=True)
    assert (tree / LIBRARY).is_file()
    assert list(tree.glob("*-py3-none-any.whl"))  # it only points to the folder


@pytest.fixture
def in_place(tree, monkeypatch):
    """Compile in place in the small tree, in this process."""
    monkeypatch.setattr(hatch_build, "SOURCE", tree / KERNEL)
    monkeypatch.setattr(hatch_build, "LIBRARY", tree / LIBRARY)
    return tree


@tiny_kernel.needs_compiler
def test_a_library_is_compiled_again_when_its_source_or_its_flags_change(in_place, monkeypatch, capsys):
    def was_compiled():
        assert hatch_build.update_library() is None
        return "compiled" in capsys.readouterr().err

    assert was_compiled()
    (in_place / KERNEL).touch()
    assert not was_compiled()
    (in_place / KERNEL).write_text(KERNEL_TEXT + "// changed")
    assert was_compiled()
    monkeypatch.setattr(hatch_build, "FLAGS", (*hatch_build.FLAGS, "-g"))
    assert was_compiled()
    assert not was_compiled()
    left = sorted(file.name for file in (in_place / LIBRARY).parent.iterdir())
    assert left == [KERNEL.name, LIBRARY.name]


@tiny_kernel.needs_compiler
def test_a_library_that_is_up_to_date_needs_no_compiler(in_place, monkeypatch, broken_compilers):
    assert hatch_build.update_library() is None
    for name, value in broken_compilers.items():
        monkeypatch.setenv(name, value)
    assert hatch_build.update_library() is None
    assert (in_place / LIBRARY).is_file()


@tiny_kernel.needs_compiler
def test_an_instruction_set_that_the_compiler_does_not_know_is_left_out(tmp_path, monkeypatch, capsys):
    library = ctypes.CDLL(str(tiny_kernel.compile_in(tmp_path, monkeypatch, best=["-mnothing-like-it"])))
    assert library.nse_forward_middle(1) == 11
    assert not hasattr(library, "nse_forward_best")
    library.nse_describe_build.restype = ctypes.c_char_p
    assert library.nse_describe_build().split()[2:] == [b"middle", b"plain"]
    told = capsys.readouterr().err
    assert told.startswith("nse: CPU kernel without best: ")
    assert "-mnothing-like-it" in told


@tiny_kernel.needs_compiler
def test_flags_can_be_added(tmp_path, monkeypatch):
    library = ctypes.CDLL(str(tiny_kernel.compile_in(tmp_path, monkeypatch, ["-DADDED=100"])))
    assert library.nse_forward_plain(1) == 112


@tiny_kernel.needs_compiler
def test_one_instruction_set_can_be_compiled_alone(tmp_path, monkeypatch):
    library = ctypes.CDLL(str(tiny_kernel.compile_in(tmp_path, monkeypatch, only=["plain"])))
    assert library.nse_forward_plain(1) == 12
    assert not hasattr(library, "nse_forward_middle")
    reason = tiny_kernel.compile_in(tmp_path, monkeypatch, only=["plain", "mmx"])
    assert reason == "this machine has no mmx, but best, middle, plain"


@tiny_kernel.needs_compiler
def test_the_compiler_of_the_environment_comes_first(tmp_path, monkeypatch):
    real = shutil.which(hatch_build.find_compilers()[0][0])
    (tmp_path / "mine").write_text(f'#!/bin/sh\ntouch "{tmp_path}/called"\nexec "{real}" "$@"\n')
    (tmp_path / "mine").chmod(0o755)
    monkeypatch.setenv("CXX", f"{tmp_path}/mine -DADDED=7")
    library = ctypes.CDLL(str(tiny_kernel.compile_in(tmp_path, monkeypatch)))
    assert (tmp_path / "called").exists()
    assert library.nse_forward_plain(1) == 19


@tiny_kernel.needs_compiler
def test_a_library_that_would_not_load_is_not_written(tmp_path, monkeypatch):
    source = f"{tiny_kernel.SOURCE}\nint nowhere(); static int x = nowhere();"
    monkeypatch.setattr(tiny_kernel, "SOURCE", source)
    assert "undefined symbol" in tiny_kernel.compile_in(tmp_path, monkeypatch)
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.cpp"]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / KERNEL).exists(), reason="there is no kernel")
@tiny_kernel.needs_compiler
def test_a_wheel_runs_where_there_is_no_compiler(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", LIBRARY.name))
    wheel, _ = build(tree)
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "with_pytorch.pth").write_text(str(Path(torch.__file__).parents[1]))

    def call(*words):
        environment = {"PATH": str(home / "bin"), "HOME": str(tmp_path)}
        run = [home / "bin" / words[0], *words[1:]]
        return subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    where = "import nse.ops.cpu.library as it; print(it.__file__, it.list_isas()[0])"
    file, isa = call("python", "-c", where).stdout.split()
    assert Path(file).is_relative_to(site)
    report = json.loads(call("nse", "bench", "--device", "cpu", "--quick", "--json").stdout)
    assert report["machine"]["kernel"] == isa
