"""Where answers go: to standard output for people or programs, or into a file, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter, FileIO, TextIOWrapper
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
import typer
from numpy.lib import format as npy

from nse.cli.rows import fit_line
from nse.console import exit_by_signal, handle_signals
from nse.errors import InputError, RunError, explain_errors
from nse.files import make_sure, open_replacement, write

BROKEN_PIPE = 141
"""The exit code of a program that a broken pipe ended, as shells tell it."""

COUNTS = ("words", "cut", "unknown")

Answer = dict[str, Any]
Describe = Callable[[Sequence[Answer]], Iterable[str]]


class Writer:
    """Writes answers, some at a time."""

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what belongs to the end, by default nothing."""


class Printer(Writer):
    """Prints answers to standard output, by a function that describes them in lines."""

    def __init__(self, describe: Describe):
        self.describe, self.stream = describe, sys.stdout  # kept, for Ray's words go elsewhere

    def write(self, rows: Sequence[Answer]) -> None:
        """Print some more."""
        print_line("\n".join(self.describe(rows)), self.stream)


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


def format_line(row: Mapping[str, Any]) -> str:
    """Format a row as JSON, on a line, in ASCII."""
    return json.dumps(row, allow_nan=False, default=np.ndarray.tolist)


def format_lines(rows: Sequence[Answer]) -> Iterable[str]:
    """Format rows as JSON, a line each."""
    return map(format_line, rows)


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_result(value: Any, as_json: bool, *lines: str) -> None:
    """Print a value for programs, or what it says for people."""
    if as_json:
        print_json(value)
    else:
        print(*lines, sep="\n")


@contextmanager
def open_writer(file: Path | None, endings: Sequence[str], describe: Describe) -> Iterator[Writer]:
    """Open a writer for a file, of the format that its name tells, or else for standard output.

    Args:
        file: A file that is there is replaced when all is written.
        endings: Those of the names that may be asked for.
        describe: From answers to the lines that are printed.

    Raises:
        InputError: It ends otherwise, or a library is missing that is needed for it.
        RunError: It cannot be written; nothing is left behind, and a file that was there is as it was.
    """
    if file is None:
        yield Printer(describe)
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


class LineWriter(Writer):
    """Writes a line for each answer, by a function that formats it."""

    def __init__(self, handle: IO[bytes], form: Callable[[Answer], str] = format_line):
        self.handle, self.form = handle, form

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        self.handle.writelines(f"{self.form(row)}\n".encode() for row in rows)


class TableWriter(LineWriter):
    """Writes fields with tabs between, under a header; a tab or line break inside of a text is a space."""

    def __init__(self, handle: IO[bytes]):
        super().__init__(handle, self._join)
        self.header: list[str] = []

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more; the first row says what the columns are."""
        rows = [flatten(row) for row in rows]
        if not self.header:
            self.header = list(rows[0])
            rows = [{name: name for name in self.header}, *rows]
        super().write(rows)

    def _join(self, row: Answer) -> str:
        fields = (str(row.get(name, "")) for name in self.header)
        return "\t".join(" ".join(field.splitlines()).replace("\t", " ") for field in fields)


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


class VectorWriter(Writer):
    """Writes the vectors as numpy's `.npy`, which `np.load` can map into memory."""

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


class ParquetWriter(Writer):
    """Writes number, id, text, vector, words, cut and unknown; each call to `write` is a row group."""

    def __init__(self, handle: IO[bytes]):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError(
                "--out: .parquet needs pyarrow: pip install 'neural-semantic-encoders[parquet]'"
            ) from None
        self.arrow, self.handle = pyarrow, handle
        self.writer: Any = None

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        arrow, vectors = self.arrow, np.stack([row["vector"] for row in rows])
        names = [row.get("id") for row in rows]
        columns = {
            "number": arrow.array([row["number"] for row in rows], arrow.int64()),
            "id": arrow.array([None if name is None else str(name) for name in names], arrow.string()),
            "text": arrow.array([row["text"] for row in rows], arrow.string()),
            "vector": arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1]),
            **{name: arrow.array([row[name] for row in rows], arrow.int32()) for name in COUNTS},
        }
        table = arrow.table(columns)
        if self.writer is None:
            # Numbers of vectors hardly ever repeat.
            self.writer = arrow.parquet.ParquetWriter(self.handle, table.schema, use_dictionary=False)
        self.writer.write_table(table)

    def close(self) -> None:
        """Write the index of what was written."""
        if self.writer is not None:
            self.writer.close()


WRITERS: dict[str, Callable[[IO[bytes]], Writer]] = {
    ".jsonl": LineWriter,
    ".tsv": TableWriter,
    ".txt": partial(LineWriter, form=itemgetter("translation")),
    ".npy": VectorWriter,
    ".parquet": ParquetWriter,
}
"""Who writes which files, by the ending of their names."""


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line in UTF-8, whatever the terminal says it takes, at once."""
    stream = stream or sys.stdout
    stream.buffer.write(f"{line}\n".encode())
    stream.buffer.flush()


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
