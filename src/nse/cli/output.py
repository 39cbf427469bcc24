"""Write answers to standard output or atomically to a file, in several formats."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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
from nse.files import check_writable, open_replacement, write_text

BROKEN_PIPE = 141  # exit code of a program that SIGPIPE ended, in shells

Answer = dict[str, Any]
Describe = Callable[[Sequence[Answer]], Iterable[str]]  # formats answers as lines
Write = Callable[[Sequence[Answer]], object]  # writes answers


def describe_predictions(rows: Sequence[Answer]) -> list[str]:
    """Format predictions as lines: label and probability, other labels, text."""
    parts = []
    for row in rows:
        probabilities = sorted(row["probabilities"].items(), key=lambda pair: -pair[1])
        label, *others = (f"{name} {100 * probability:.1f}%" for name, probability in probabilities)
        text = " | ".join(fit_line(text) for text in row.get("texts", [row.get("text")]))
        parts.append((f"{label} ({', '.join(others)})" if others else label, text + note_lost_words(row)))
    width = max((len(label) for label, _ in parts), default=0)
    return [f"{label:<{width}}  {text}" for label, text in parts]


def describe_ranking(rows: Sequence[Answer]) -> list[str]:
    """Format candidates as lines: rank, score, line and text, under a heading for each question."""
    lines = []
    for row in rows:
        if row["rank"] == 1:
            lines += [fit_line(row["question"])] if "question" in row else []
            lines.append(f"{'rank':>4}  {'score':>8}  {'line':>4}  sentence")
        figures = f"{row['rank']:>4}  {row['score']:>8.4f}  {row['number']:>4}"
        lines.append(f"{figures}  {fit_line(row['text'])}{note_lost_words(row)}")
    return lines


def describe_translations(rows: Sequence[Answer]) -> list[str]:
    """Return the translations."""
    return [row["translation"] for row in rows]


def note_lost_words(row: Answer) -> str:
    """Note how many words were unknown or truncated, if any."""
    unknown = f"{row['unknown']:,} of {row['words']:,} words unknown" if row["unknown"] else ""
    cut = f"{row['cut']:,} words truncated" if row["cut"] else ""
    return f"  [{'; '.join(filter(None, (unknown, cut)))}]" if unknown or cut else ""


def format_json(rows: Sequence[Answer]) -> list[str]:
    """Format answers as lines of JSON in ASCII."""
    return [json.dumps(row, allow_nan=False, default=np.ndarray.tolist) for row in rows]


def make_tsv_formatter() -> Describe:
    """Make a function that formats answers as TSV, with a header before the first."""
    header: dict[str, str] = {}

    def format_rows(rows: Sequence[Answer]) -> list[str]:
        rows = [flatten(row) for row in rows]
        if not header:
            header.update(zip(rows[0], rows[0], strict=True))
            rows.insert(0, header)
        # Tabs and line breaks in a text become spaces.
        fields = ((str(row.get(name, "")).splitlines() for name in header) for row in rows)
        return ["\t".join(" ".join(lines).replace("\t", " ") for lines in row) for row in fields]

    return format_rows


def flatten(row: Answer) -> Answer:
    """Flatten an answer: a column for each label and text, words joined by spaces."""
    flat: Answer = {"number": row["number"], "id": row.get("id", "")}
    for name, value in row.items():
        if name == "probabilities":
            flat |= {f"probability.{label}": number for label, number in value.items()}
        elif name == "texts":
            flat |= {f"text.{i}": text for i, text in enumerate(value, start=1)}
        else:
            flat[name] = " ".join(value) if isinstance(value, list) else value
    return flat


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_result(value: Any, as_json: bool, *lines: str) -> None:
    """Print a value as JSON, or the lines."""
    if as_json:
        print_json(value)
    else:
        print(*lines, sep="\n")


@contextmanager
def write_lines(handle: IO[bytes], describe: Describe) -> Iterator[Write]:
    """Write answers as lines, flushed after each call."""

    def write(rows: Sequence[Answer]) -> None:
        handle.write("".join(f"{line}\n" for line in describe(rows)).encode())
        handle.flush()

    yield write


@contextmanager
def write_vectors(handle: IO[bytes]) -> Iterator[Write]:
    """Write vectors as an `.npy` file, which `np.load` can memory-map."""
    count = size = start = 0

    def write_header() -> int:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, size)}
        npy.write_array_header_1_0(handle, header)
        return handle.tell()

    def write(rows: Sequence[Answer]) -> None:
        nonlocal count, size, start
        vectors = np.stack([row["vector"] for row in rows]).astype("<f4", copy=False)
        if not start:
            size = vectors.shape[1]
            start = write_header()
        handle.write(vectors.tobytes())
        count += len(vectors)

    yield write
    handle.seek(0)  # again, with the count; numpy pads the header
    end = write_header()
    if start not in (0, end):
        raise RunError(f"the header of the vectors grew from {start} to {end} bytes")


@contextmanager
def write_parquet(handle: IO[bytes]) -> Iterator[Write]:
    """Write vectors with ids, texts and counts as Parquet, a row group per call."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        needs = "--out: .parquet needs pyarrow: pip install 'neural-semantic-encoders[parquet]'"
        raise InputError(needs) from None
    writer: Any = None

    def write(rows: Sequence[Answer]) -> None:
        nonlocal writer
        if writer is None:
            columns = {"number": arrow.int64(), "id": arrow.string(), "text": arrow.string()}
            columns["vector"] = arrow.list_(arrow.float32(), len(rows[0]["vector"]))
            columns |= dict.fromkeys(("words", "cut", "unknown"), arrow.int32())
            schema = arrow.schema(columns.items())
            writer = parquet.ParquetWriter(handle, schema, use_dictionary=False)  # vectors do not repeat
        named = [row | {"id": str(row["id"])} if "id" in row else row for row in rows]
        writer.write_table(arrow.Table.from_pylist(named, schema=writer.schema))

    try:
        yield write
    except BaseException:
        with suppress(Exception):  # or pyarrow would try it later, when the file is gone
            writer.close()
        raise
    if writer is not None:
        writer.close()


WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Write]]] = {
    ".jsonl": partial(write_lines, describe=format_json),
    ".tsv": lambda handle: write_lines(handle, make_tsv_formatter()),
    ".txt": partial(write_lines, describe=describe_translations),
    ".npy": write_vectors,
    ".parquet": write_parquet,
}
"""Functions that write answers, by suffix."""


@contextmanager
def open_writer(file: Path | None, suffixes: Sequence[str], describe: Describe) -> Iterator[Write]:
    """Open a writer to standard output, or to a file in the format of its suffix."""
    if file is None:
        with write_lines(sys.stdout.buffer, describe) as write:  # Ray replaces sys.stdout later
            yield write
        return
    suffix = file.suffix.lower()
    if suffix not in suffixes:
        raise InputError(f"--out: expected a file with the suffix {', '.join(suffixes)}, got {file}")
    with open_output(file) as handle:
        if suffix in (".npy", ".parquet") and not handle.seekable():
            raise InputError(f"--out: {file} is a pipe: write .jsonl to it, {suffix} needs a file")
        with WRITERS[suffix](handle) as write:
            yield write


@contextmanager
def open_output(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for an atomic write; after an error or a signal nothing is left of it."""
    signals = handle_signals(exit_by_signal, "SIGTERM", "SIGHUP")
    with explain_errors(f"{file} cannot be written"), signals:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(file, alone=True) as handle:
            yield handle


def check_output(file: Path) -> None:
    """Raise a `RunError` if a file cannot be written."""
    with explain_errors(f"{file} cannot be written"):
        check_writable(file)


def write_output(file: Path, text: str) -> None:
    """Write a text file atomically."""
    with explain_errors(f"{file} cannot be written"):
        write_text(file, text)


def warn(line: str) -> None:
    """Print a message to standard error and flush."""
    print(f"nse: {line}", file=sys.stderr, flush=True)


def print_table(names: Sequence[str], rows: Iterable[Iterable[str]], title: str | None = None) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*names, title=title)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def print_line(line: str) -> None:
    """Print a line in UTF-8, whatever the encoding of the terminal, and flush."""
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


class StandardOutput(FileIO):
    """Standard output that raises a `RunError` when it cannot be written."""

    def write(self, content: Any, /) -> int:
        """Write bytes; exit silently on a broken pipe."""
        try:
            return super().write(content) or 0
        except OSError as error:
            # The rest of the buffer would fail again when the program ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise typer.Exit(BROKEN_PIPE) from None
            why = f"cannot be written: {error.strerror}"
            if error.errno == errno.EBADF:
                why = "is closed: leave out >&-"
            raise RunError(f"standard output {why}") from None


def open_standard_streams() -> None:
    """Replace closed standard streams by the null device, so that no other file gets their numbers.

    Printing to a closed standard output then fails, to a closed standard error is lost; a closed `sys.stdin`
    stays `None`.
    """
    if sys.stdin is None:
        open_null(os.O_WRONLY)
    if sys.stdout is sys.__stdout__:  # not replaced by a test
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
    """Open the null device, inherited by child processes; return its number."""
    number = os.open(os.devnull, mode)  # the lowest free number: that of the closed stream
    os.set_inheritable(number, True)
    return number
