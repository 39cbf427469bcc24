"""Where answers go: to standard output for people or programs, or into a file, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import numpy as np
import typer
from numpy.lib import format as npy

from nse.cli.rows import fit_line
from nse.console import exit_by_signal, handle_signals
from nse.errors import InputError, RunError, explain_errors
from nse.files import make_sure, open_replacement, write

BROKEN_PIPE = 141
"""The exit code of a program that a broken pipe ended, as shells tell it."""

Answer = dict[str, Any]
Describe = Callable[[Sequence[Answer]], Iterable[str]]
"""From answers to lines."""


def describe_predictions(rows: Sequence[Answer]) -> list[str]:
    """Describe predictions, a line each: the label, how sure the model is, the other labels, the text."""
    described = []
    for row in rows:
        chances = sorted(row["probabilities"].items(), key=lambda chance: -chance[1])
        label, *others = (f"{name} {100 * share:.1f}%" for name, share in chances)
        text = " | ".join(fit_line(text) for text in row.get("texts", [row.get("text")]))
        described.append((f"{label} ({', '.join(others)})" if others else label, text + describe_losses(row)))
    width = max((len(label) for label, _ in described), default=0)
    return [f"{label:<{width}}  {text}" for label, text in described]


def describe_ranking(rows: Sequence[Answer]) -> list[str]:
    """Describe candidates, a line each: rank, score, number, text; a heading above those of a question."""
    lines = []
    for row in rows:
        if row["rank"] == 1:
            lines += [fit_line(row["question"])] if "question" in row else []
            lines.append(f"{'rank':>4}  {'score':>8}  {'line':>4}  sentence")
        place = f"{row['rank']:>4}  {row['score']:>8.4f}  {row['number']:>4}"
        lines.append(f"{place}  {fit_line(row['text'])}{describe_losses(row)}")
    return lines


def describe_translations(rows: Sequence[Answer]) -> list[str]:
    """Describe translations, a line each: the text alone."""
    return [row["translation"] for row in rows]


def describe_losses(row: Answer) -> str:
    """Describe which words had no say, if any."""
    unknown = f"{row['unknown']:,} of {row['words']:,} words unknown" if row["unknown"] else ""
    cut = f"{row['cut']:,} words cut" if row["cut"] else ""
    return f"  [{'; '.join(filter(None, (unknown, cut)))}]" if unknown or cut else ""


def format_lines(rows: Sequence[Answer]) -> list[str]:
    """Format answers as JSON in ASCII, a line each."""
    return [json.dumps(row, allow_nan=False, default=np.ndarray.tolist) for row in rows]


class FormatTable:
    """Formats answers as fields with tabs between, under a header that the first answer makes."""

    def __init__(self) -> None:
        self.header: dict[str, str] = {}

    def __call__(self, rows: Sequence[Answer]) -> list[str]:
        """Format answers; a tab or a line break inside of a text is a space."""
        rows = [flatten(row) for row in rows]
        if not self.header:
            self.header = {name: name for name in rows[0]}
            rows.insert(0, self.header)
        fields = ((str(row.get(name, "")).splitlines() for name in self.header) for row in rows)
        return ["\t".join(" ".join(lines).replace("\t", " ") for lines in row) for row in fields]


def flatten(row: Answer) -> Answer:
    """Make columns of dictionaries and of texts, and a text of words."""
    flat: Answer = {"number": row["number"], "id": row.get("id", "")}
    for name, value in row.items():
        if name == "probabilities":
            flat |= {f"probability.{label}": chance for label, chance in value.items()}
        elif name == "texts":
            flat |= {f"text.{place}": text for place, text in enumerate(value, start=1)}
        else:
            flat[name] = " ".join(value) if isinstance(value, list) else value
    return flat


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_result(value: Any, as_json: bool, *lines: str) -> None:
    """Print a value for programs, or what it says for people."""
    if as_json:
        print_json(value)
    else:
        print(*lines, sep="\n")


class LineWriter:
    """Writes lines that describe answers, each as soon as it is there."""

    def __init__(self, handle: IO[bytes], describe: Describe):
        self.handle, self.describe = handle, describe

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        self.handle.write("".join(f"{line}\n" for line in self.describe(rows)).encode())
        self.handle.flush()

    def close(self) -> None:
        """Write what belongs to the end: here nothing."""


class VectorWriter:
    """Writes vectors as numpy's `.npy`, which `np.load` can map into memory."""

    def __init__(self, handle: IO[bytes]):
        self.handle = handle
        self.count = self.size = self.start = 0

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        vectors = np.stack([row["vector"] for row in rows]).astype("<f4", copy=False)
        if not self.start:
            self.size = vectors.shape[1]
            self.start = self._write_header()
        self.handle.write(vectors.tobytes())
        self.count += len(vectors)

    def close(self) -> None:
        """Write the header again, now that the number of rows is known; numpy left room for it."""
        self.handle.seek(0)
        end = self._write_header()
        if self.start not in (0, end):
            raise RunError(f"the header of the vectors has grown from {self.start} to {end} bytes")

    def _write_header(self) -> int:
        shape = (self.count, self.size)
        npy.write_array_header_1_0(self.handle, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return self.handle.tell()


class ParquetWriter:
    """Writes vectors and what belongs to them as Parquet; each call to `write` is a row group."""

    def __init__(self, handle: IO[bytes]):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            needs = "--out: .parquet needs pyarrow: pip install 'neural-semantic-encoders[parquet]'"
            raise InputError(needs) from None
        self.arrow, self.handle = pyarrow, handle
        self.writer: Any = None

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        arrow = self.arrow
        if self.writer is None:
            columns = {"number": arrow.int64(), "id": arrow.string(), "text": arrow.string()}
            columns["vector"] = arrow.list_(arrow.float32(), len(rows[0]["vector"]))
            columns |= dict.fromkeys(("words", "cut", "unknown"), arrow.int32())
            # Numbers of vectors hardly ever repeat.
            self.writer = arrow.parquet.ParquetWriter(
                self.handle, arrow.schema(columns.items()), use_dictionary=False
            )
        named = [row | {"id": str(row["id"])} if "id" in row else row for row in rows]
        self.writer.write_table(arrow.Table.from_pylist(named, schema=self.writer.schema))

    def close(self) -> None:
        """Write the index of what was written."""
        if self.writer is not None:
            self.writer.close()


Writer = LineWriter | VectorWriter | ParquetWriter

WRITERS: dict[str, Callable[[IO[bytes]], Writer]] = {
    ".jsonl": partial(LineWriter, describe=format_lines),
    ".tsv": lambda handle: LineWriter(handle, FormatTable()),
    ".txt": partial(LineWriter, describe=describe_translations),
    ".npy": VectorWriter,
    ".parquet": ParquetWriter,
}
"""Who writes which files, by the ending of their names."""


@contextmanager
def open_writer(file: Path | None, endings: Sequence[str], describe: Describe) -> Iterator[Writer]:
    """Open a writer of standard output, or of a file in the format that its name tells; see `open_output`."""
    if file is None:
        yield LineWriter(sys.stdout.buffer, describe)  # this one, for Ray's words go elsewhere
        return
    ending = file.suffix.lower()
    if ending not in endings:
        raise InputError(f"--out: expected a file ending in {', '.join(endings)}, got {file}")
    with open_output(file) as handle:
        if ending in (".npy", ".parquet") and not handle.seekable():
            raise InputError(f"--out: {file} is a pipe, which can take .jsonl, but not {ending}")
        writer = WRITERS[ending](handle)
        try:
            yield writer
        except BaseException:
            with suppress(Exception):  # the file will be gone; pyarrow would try to end it later
                writer.close()
            raise
        writer.close()


@contextmanager
def open_output(file: Path) -> Iterator[IO[bytes]]:
    """Open a file beside its place, that takes its name in the end and is gone if anything goes wrong."""
    end = handle_signals(exit_by_signal, "SIGTERM", "SIGHUP")  # as an error: nothing half is left behind
    with explain_errors(f"{file} cannot be written"), end:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(file, alone=True) as handle:
            yield handle


def check_output(file: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    with explain_errors(f"{file} cannot be written"):
        make_sure(file)


def write_output(file: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with explain_errors(f"{file} cannot be written"):
        write(file, text)


def print_line(line: str) -> None:
    """Print a line in UTF-8, whatever the terminal says it takes, at once."""
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


class StandardOutput(FileIO):
    """The file of standard output, which says in a line why it cannot be written, whoever prints."""

    def write(self, content: Any, /) -> int:
        """Write bytes; end quietly if nobody reads on."""
        try:
            return super().write(content) or 0
        except OSError as error:
            # What is left in the buffer would fail once more at the end of the program.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise typer.Exit(BROKEN_PIPE) from None
            why = f"cannot be written: {error.strerror}"
            if error.errno == errno.EBADF:
                why = "is closed, and there is something to print: leave out >&-"
            raise RunError(f"standard output {why}") from None


def open_standard_streams() -> None:
    """Prepare the standard streams of the program, of which some may be closed.

    The null device is opened in the place of a closed stream, so that no other file takes its number. What is
    then printed to standard output fails; what is printed to standard error is lost, as whoever closed it
    wants; standard input stays `None`.
    """
    if sys.stdin is None:
        open_null(os.O_WRONLY)
    if sys.stdout is sys.__stdout__:  # or a test has put its own in the place
        usual = sys.__stdout__
        file = StandardOutput(usual.fileno() if usual else open_null(os.O_RDONLY), "wb", closefd=False)
        how: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
        if usual:
            names = ("encoding", "errors", "line_buffering", "write_through")
            how = {name: getattr(usual, name) for name in names}
        sys.stdout = TextIOWrapper(BufferedWriter(file), **how)
    if sys.stderr is None:
        sys.stderr = open(  # noqa: SIM115
            open_null(os.O_WRONLY), "w", encoding="utf-8", errors="backslashreplace", closefd=False
        )


def open_null(mode: int) -> int:
    """Open the null device, for other programs that are started as well; returns its number."""
    number = os.open(os.devnull, mode)  # the lowest that is free: that of a stream that is closed
    os.set_inheritable(number, True)
    return number
