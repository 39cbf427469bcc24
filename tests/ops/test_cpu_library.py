"""The library of the CPU kernel: which instruction set is chosen, and what is told where there is none."""

import ctypes
import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import tiny_kernel
from nse.errors import BackendError
from nse.ops.cpu import library


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        return tiny_kernel.compile_in(tmp_path_factory.mktemp("compiled"), patch)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Where the library is looked for."""
    monkeypatch.delenv("NSE_CPU_ISA", raising=False)
    monkeypatch.setattr(library, "_logged", {})
    monkeypatch.setattr(library, "PATH", tmp_path / "libnse_cpu.so")
    return library.PATH


@pytest.fixture
def installed(path, compiled):
    shutil.copy(compiled, path)
    return path


@tiny_kernel.needs_compiler
def test_the_best_instruction_set_that_the_cpu_has_is_chosen(installed):
    assert library.explain_no_kernel() is None
    assert library.list_isas() == ["middle", "plain"]
    kernel = library.load_kernel()
    assert kernel.isa == "middle"
    assert kernel.get("forward")(4) == 41
    assert kernel.get("forward") is library.load_kernel().get("forward")  # keeps the types of its arguments


@tiny_kernel.needs_compiler
def test_a_variable_forces_an_instruction_set_at_any_time(installed, monkeypatch):
    assert library.load_kernel().isa == "middle"
    monkeypatch.setenv("NSE_CPU_ISA", "plain")
    assert library.load_kernel().get("forward")(4) == 42
    monkeypatch.setenv("NSE_CPU_ISA", "")
    assert library.load_kernel().isa == "middle"


@tiny_kernel.needs_compiler
@pytest.mark.parametrize("name", ["best", "avx9"])
def test_an_instruction_set_that_is_not_there_is_refused(installed, monkeypatch, name):
    monkeypatch.setenv("NSE_CPU_ISA", name)
    for ask in (library.load_kernel, library.explain_no_kernel):
        with pytest.raises(BackendError, match=f"^NSE_CPU_ISA='{name}' .*there are middle, plain, none$"):
            ask()


@tiny_kernel.needs_compiler
def test_a_variable_turns_the_kernel_off_without_a_word(installed, monkeypatch, caplog):
    monkeypatch.setenv("NSE_CPU_ISA", "none")
    with caplog.at_level("DEBUG"):
        assert library.explain_no_kernel() == "NSE_CPU_ISA=none turns it off"
    with pytest.raises(BackendError, match="NSE_CPU_ISA=none"):
        library.load_kernel()
    assert caplog.records == []


def test_a_library_that_was_not_compiled_is_told_in_one_line_of_the_log(path, caplog):
    start = Barrier(4)

    def ask(_):
        start.wait()
        return [library.explain_no_kernel() for _ in range(3)]

    with caplog.at_level("INFO"), ThreadPoolExecutor(4) as pool:
        reasons = {reason for answers in pool.map(ask, range(4)) for reason in answers}
        with pytest.raises(BackendError, match="the CPU kernel cannot run here: it was not compiled"):
            library.load_kernel()
    assert reasons == {"it was not compiled; install nse again where there is a C++ compiler"}
    (record,) = caplog.records
    assert record.getMessage().startswith("the CPU kernel cannot run: it was not compiled")
    assert library.list_isas() == []


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, b"\x7fELF" + bytes(4000)])
def test_a_file_that_is_no_library_is_as_good_as_none(path, content, caplog):
    path.write_bytes(content)
    with caplog.at_level("INFO"):
        assert f"{path} cannot be loaded (" in library.explain_no_kernel()
    assert len(caplog.records) == 1


def test_another_library_is_as_good_as_none(path, monkeypatch):
    import _ctypes

    monkeypatch.setattr(library, "PATH", type(path)(_ctypes.__file__))  # loads, and has none of the functions
    assert "nse_describe_build" in library.explain_no_kernel()


@tiny_kernel.needs_compiler
def test_a_library_of_another_source_is_not_used(installed):
    source = installed.with_name("kernel.cpp")
    source.write_text(tiny_kernel.SOURCE + "// changed since")
    assert library.explain_no_kernel().startswith("it was compiled from another kernel.cpp")


@tiny_kernel.needs_compiler
def test_a_library_knows_its_source(installed):
    source = installed.with_name("kernel.cpp")
    source.write_text(tiny_kernel.SOURCE)
    assert library.load_kernel().isa == "middle"
    describe = ctypes.CDLL(str(installed)).nse_describe_build
    describe.restype = ctypes.c_char_p
    checksum, _, *isas = describe().decode().split()
    assert checksum == hashlib.sha256(source.read_bytes()).hexdigest()
    assert isas == ["best", "middle", "plain"]
