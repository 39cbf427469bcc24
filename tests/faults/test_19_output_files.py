"""Fault 19: two writers for a file; a device, a FIFO, a link or a private file as output."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nse import files
from nse.cli import main as cli
from nse.cli.output import format_json, open_output, open_writer, write_output
from nse.errors import InputError, RunError
from nse.files import check_writable, open_replacement, write_bytes
from nse.inference.onnx import write_files
from small_models import save_sentence_model

BIG = 8_000_000

WRITES = """
import runpy, sys
from pathlib import Path

write_bytes = runpy.run_path(sys.argv[1])["write_bytes"]  # without the package, which imports PyTorch
sys.stdin.readline()
for _ in range(12):
    write_bytes(Path(sys.argv[2]), sys.argv[3].encode() * 8_000_000)
"""


def stream(file, content):
    with open_output(file) as handle:
        handle.write(content)


WRITERS: dict[str, Callable[[Path, bytes], None]] = {
    "at once": write_bytes,
    "as it comes": stream,
    "a picture": lambda file, content: write_output(file, content.decode()),
    "an ONNX file": lambda file, content: write_files(
        file, content, file.with_suffix(".vocabulary.txt"), b"words"
    ),
}

each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))


def device(path, minor):
    """A copy of a device of /dev, so that nothing happens to that one."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    except (PermissionError, AttributeError, OSError):
        pytest.skip("only root may make devices")
    return path


def null(path):
    return device(path, 3)


def full(path):
    return device(path, 7)


def reader_of(fifo):
    """A thread that reads a FIFO to its end, and what it has read."""
    content = []
    thread = threading.Thread(target=lambda: content.append(fifo.read_bytes()), daemon=True)
    thread.start()
    return thread, content


def names(folder):
    return sorted(item.name for item in folder.iterdir())


def test_two_processes_write_a_file_completely_and_without_errors(tmp_path):
    file = tmp_path / "file"
    write_bytes(file, b"a" * BIG)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, files.__file__, str(file), letter],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for letter in "bc"
    ]
    for writer in writers:
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    seen = set()
    while any(writer.poll() is None for writer in writers):
        content = file.read_bytes()
        assert len(content) == BIG
        assert content.count(content[:1]) == BIG
        seen.add(content[:1])
    for writer in writers:
        assert (writer.communicate()[1], writer.returncode) == (b"", 0)
    assert len(seen | {file.read_bytes()[:1]}) > 1
    assert names(tmp_path) == ["file"]


def test_two_threads_write_a_file_completely(tmp_path):
    file = tmp_path / "file"
    with open_replacement(file) as one, open_replacement(file) as other:
        one.write(b"one" * 1000)
        other.write(b"other")
    assert file.read_bytes() == b"one" * 1000  # which ended last
    assert names(tmp_path) == ["file"]


def test_a_second_command_is_refused_while_the_file_is_written(tmp_path):
    with (
        open_output(tmp_path / "answers.jsonl"),
        pytest.raises(RunError, match=r"answers\.jsonl cannot be written: another process is writing it"),
        open_output(tmp_path / "answers.jsonl"),
    ):
        pytest.fail("it was begun")
    assert names(tmp_path) == ["answers.jsonl"]


def test_files_with_similar_names_are_written_independently(tmp_path):
    one, other = (tmp_path / f"{'n' * 245}{number}.jsonl" for number in "12")
    with open_output(one), open_output(other):
        pass
    assert names(tmp_path) == [one.name, other.name]


@each_writer
def test_a_device_is_written_to_and_not_replaced(write, tmp_path):
    out = null(tmp_path / "null")
    write(out, b"content")
    assert stat.S_ISCHR(out.stat().st_mode)
    assert set(names(tmp_path)) <= {"null", "null.vocabulary.txt"}


@each_writer
def test_a_full_device_is_an_error_and_not_replaced(write, tmp_path):
    out = full(tmp_path / "full")
    with pytest.raises((OSError, RunError), match="No space left on device"):
        write(out, b"content" * 10_000)
    assert stat.S_ISCHR(out.stat().st_mode)
    assert names(tmp_path) == ["full"]


@each_writer
def test_the_reader_of_a_fifo_gets_all_lines(write, tmp_path):
    out = tmp_path / "fifo"
    os.mkfifo(out)
    check_writable(out)  # which must not be the end for the reader
    thread, content = reader_of(out)
    write(out, b"content" * 30_000)
    thread.join(30)
    assert content == [b"content" * 30_000]
    assert stat.S_ISFIFO(out.stat().st_mode)


def test_a_fifo_without_a_reader_is_an_error(tmp_path):
    out = tmp_path / "fifo.jsonl"
    os.mkfifo(out)
    reading = os.open(out, os.O_RDONLY | os.O_NONBLOCK)

    def leave():
        os.close(reading)
        return b"answer" * 100_000

    with (
        pytest.raises(RunError, match=r"fifo\.jsonl cannot be written: Broken pipe"),
        open_output(out) as handle,
    ):
        handle.write(leave())


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_formats_that_cannot_be_streamed_are_not_written_to_a_fifo(ending, tmp_path):
    out = tmp_path / f"fifo{ending}"
    os.mkfifo(out)
    thread, _ = reader_of(out)
    with (
        pytest.raises(InputError, match=rf"is a pipe: write \.jsonl to it, \{ending} needs a file"),
        open_writer(out, (".npy", ".parquet", ".jsonl"), format_json),
    ):
        pytest.fail("it was begun")
    thread.join(30)


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_vectors_can_be_written_to_dev_null(ending, tmp_path):
    out = null(tmp_path / f"null{ending}")
    row = {"number": 1, "text": "a", "vector": np.ones(3, np.float32), "words": 1, "cut": 0, "unknown": 0}
    with open_writer(out, (".npy", ".parquet"), format_json) as write:
        write([row] * 5_000)
        write([row])
    assert stat.S_ISCHR(out.stat().st_mode)


@each_writer
def test_a_folder_as_output_file_is_refused(write, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises((OSError, RunError), match="Is a directory"):
        write(tmp_path / "out", b"content")
    assert names(tmp_path / "out") == []
    assert "out" in names(tmp_path)
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


@each_writer
def test_a_link_as_output_file_is_followed(write, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    link.symlink_to(Path("there") / "target")
    for content in (b"new", b"newer"):  # a link that leads to nothing, then to a file
        check_writable(link)
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert names(tmp_path / "there") == ["target"]


def test_a_link_to_itself_is_an_error(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(RunError, match="Too many levels of symbolic links"), open_output(tmp_path / "link"):
        pytest.fail("it was begun")


@each_writer
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_replaced_file_keeps_its_mode(mode, write, tmp_path):
    out = tmp_path / "answers"
    out.write_text("old")
    out.chmod(mode)
    before = os.umask(0o027)
    try:
        write(out, b"new")
    finally:
        os.umask(before)
    assert out.read_bytes() == b"new"
    assert stat.S_IMODE(out.stat().st_mode) == mode


def test_the_part_file_of_a_private_file_is_private(tmp_path):
    out = tmp_path / "answers"
    out.write_text("old")
    out.chmod(0o600)
    with open_replacement(out) as handle:
        handle.write(b"new")
        (part,) = tmp_path.glob(".*.part")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0o022, 0o077])
@each_writer
def test_a_new_file_follows_the_umask(write, umask, tmp_path):
    before = os.umask(umask)
    try:
        write(tmp_path / "answers", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "answers").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path):
    out = tmp_path / "answers"
    out.write_text("old")
    os.chown(out, 4321, 1234)
    out.chmod(0o640)
    write_bytes(out, b"new")
    status = out.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (4321, 1234, 0o640)


@each_writer
@pytest.mark.parametrize("plant", ["link", "dangling", "fifo", "file"])
def test_a_link_planted_as_part_file_is_not_written_to(plant, write, tmp_path, monkeypatch):
    """Also where somebody could guess the name: the first two that are drawn are taken already."""
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("dear")
    folder.mkdir()
    drawn = iter(["00000000", "00000001", *(f"{number:08x}" for number in range(2, 50))])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(drawn))
    planted = [
        folder / ".out.part",
        *(folder / f".out.{os.getpid()}-0000000{number}.part" for number in range(2)),
    ]
    for path in planted:
        if plant == "fifo":
            os.mkfifo(path)
        elif plant == "file":
            os.link(victim, path)
        else:
            path.symlink_to(victim if plant == "link" else tmp_path / "nowhere")
    write(folder / "out", b"content")
    assert victim.read_text() == "dear"
    assert not (tmp_path / "nowhere").exists()
    assert (folder / "out").read_bytes() == b"content"
    assert not (folder / "out").is_symlink()


def test_only_part_files_of_dead_processes_are_removed(tmp_path):
    dead = tmp_path / ".out.12345-0123abcd.part"
    others = [".out.part", ".out.1-0123abcd.part.etag", ".outer.12345-0123abcd.part", ".out.x-0123abcd.part"]
    for name in [dead.name, *others]:
        (tmp_path / name).write_text("half")
    with open_replacement(tmp_path / "out") as slow:
        slow.write(b"slow")
        write_bytes(tmp_path / "out", b"quick")
        assert (tmp_path / "out").read_bytes() == b"quick"
        assert len(names(tmp_path)) == len(others) + 2  # the file and the part that is still written
    assert names(tmp_path) == sorted(["out", *others])
    assert (tmp_path / "out").read_bytes() == b"slow"


@each_writer
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_no_part_file(error, write, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.write_text("old")

    def interrupt(number):
        raise error

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(error):
        write(out, b"new")
    assert out.read_text() == "old"
    assert not list(tmp_path.glob(".*.part"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_sentence_model(tmp_path_factory.mktemp("model") / "mine"))


def run(monkeypatch, *words):
    """Run a command as the program does; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["nse", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


COMMANDS = {
    "predict": (".jsonl", ["predict", "MODEL", "good", "--out"]),
    "predict to a table": (".tsv", ["predict", "MODEL", "good", "--out"]),
    "encode": (".npy", ["encode", "MODEL", "good", "--out"]),
    "explore --html": (".html", ["explore", "MODEL", "good", "--html"]),
    "explore --svg": (".svg", ["explore", "MODEL", "good", "--svg"]),
    "explore --heat": (".svg", ["explore", "MODEL", "good", "--heat"]),
    "explore --dot": (".dot", ["explore", "MODEL", "good", "--dot"]),
    "explore --latex": (".tex", ["explore", "MODEL", "good", "--latex"]),
    "explore --json": (".json", ["explore", "MODEL", "good", "--json"]),
    "bench": (".json", ["bench", "--device", "cpu", "--quick", "--threads", "1", "--out"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_replaces_a_device(command, model, tmp_path, monkeypatch, capsys):
    ending, words = COMMANDS[command]
    words = [model if word == "MODEL" else word for word in words]
    monkeypatch.setattr("nse.cli.bench.measure_shape", lambda *shape: [])
    for made, code in ((null, 0), (full, 2)):
        out = made(tmp_path / f"{made.__name__}{ending}")
        assert run(monkeypatch, *words, out) == code
        message = capsys.readouterr().err
        assert "Traceback" not in message
        assert code == 0 or f"nse: {out} cannot be written: No space left on device\n" in message
        assert stat.S_ISCHR(out.stat().st_mode)
    assert names(tmp_path) == [f"full{ending}", f"null{ending}"]


def test_a_private_output_file_stays_private(model, tmp_path, monkeypatch):
    out, link = tmp_path / "answers.jsonl", tmp_path / "link.jsonl"
    out.write_text("old")
    out.chmod(0o600)
    link.symlink_to(out.name)
    assert run(monkeypatch, "predict", model, "good", "--out", link) == 0
    assert json.loads(out.read_text())["text"] == "good"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert link.is_symlink()


def test_a_command_started_by_nohup_ignores_sighup(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with open_output(tmp_path / "a.txt") as handle:
            os.kill(os.getpid(), signal.SIGHUP)
            handle.write(b"whole")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "a.txt").read_bytes() == b"whole"


def test_the_name_of_a_part_file_has_its_process_number(tmp_path):
    with open_replacement(tmp_path / "out"):
        (part,) = names(tmp_path)
        assert re.fullmatch(rf"\.out\.{os.getpid()}-[0-9a-f]{{8}}\.part", part)
