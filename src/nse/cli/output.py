"""Where answers go: to standard output for people or programs, or into a file, whole or not at all."""

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

BROKEN_PIPE = 141  # the exit code of a program that a broken pipe ended, as shells tell it

Answer = dict[str, Any]
Describe = Callable[[Sequence[Answer]], Iterable[str]]  # makes lines of answers
Write = Callable[[Sequence[Answer]], object]  # writes some more answers


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


def make_table() -> Describe:
    """Make what formats answers as fields with tabs between, under a header that the first answer makes."""
    header: dict[str, str] = {}

    def format_rows(rows: Sequence[Answer]) -> list[str]:
        rows = [flatten(row) for row in rows]
        if not header:
            header.update(zip(rows[0], rows[0], strict=True))
            rows.insert(0, header)
        # A tab or a line break inside of a text is a space.
        fields = ((str(row.get(name, "")).splitlines() for name in header) for row in rows)
        return ["\t".join(" ".join(lines).replace("\t", " ") for lines in row) for row in fields]

    return format_rows


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


@contextmanager
def write_lines(handle: IO[bytes], describe: Describe) -> Iterator[Write]:
    """Write lines that describe answers, each as soon as it is there."""

    def write(rows: Sequence[Answer]) -> None:
        handle.write("".join(f"{line}\n" for line in describe(rows)).encode())
        handle.flush()

    yield write


@contextmanager
def write_vectors(handle: IO[bytes]) -> Iterator[Write]:
    """Write vectors as numpy's `.npy`, which `np.load` can map into memory."""
    count = size = start = 0

    def write_header() -> int:
        about = {"descr": "<f4", "fortran_order": False, "shape": (count, size)}
        npy.write_array_header_1_0(handle, about)
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
    handle.seek(0)  # the header once more, now that the count is known; numpy left room for it
    end = write_header()
    if start not in (0, end):
        raise RunError(f"the header of the vectors has grown from {start} to {end} bytes")


@contextmanager
def write_parquet(handle: IO[bytes]) -> Iterator[Write]:
    """Write vectors and what belongs to them as Parquet, a row group at a time."""
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
            writer = parquet.ParquetWriter(handle, schema, use_dictionary=False)  # numbers hardly repeat
        named = [row | {"id": str(row["id"])} if "id" in row else row for row in rows]
        writer.write_table(arrow.Table.from_pylist(named, schema=writer.schema))

    try:
        yield write
    except BaseException:
        with suppress(Exception):  # the file will be gone; pyarrow would try to end it later
            writer.close()
        raise
    if writer is not None:
        writer.close()


WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Write]]] = {
    ".jsonl": partial(write_lines, describe=format_lines),
    ".tsv": lambda handle: write_lines(handle, make_table()),
    ".txt": partial(write_lines, describe=describe_translations),
    ".npy": write_vectors,
    ".parquet": write_parquet,
}
"""Who writes which files, by the ending of their names."""


@contextmanager
def open_writer(file: Path | None, endings: Sequence[str], describe: Describe) -> Iterator[Write]:
    """Open what writes to standard output, or to a file in the format that its name tells."""
    if file is None:
        with write_lines(sys.stdout.buffer, describe) as write:  # this one, for Ray's words go elsewhere
            yield write
        return
    ending = file.suffix.lower()
    if ending not in endings:
        raise InputError(f"--out: expected a file ending in {', '.join(endings)}, got {file}")
    with open_output(file) as handle:
        if ending in (".npy", ".parquet") and not handle.seekable():
            raise InputError(f"--out: {file} is a pipe, which can take .jsonl, but not {ending}")
        with WRITERS[ending](handle) as write:
            yield write


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
        check_writable(file)


def write_output(file: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with explain_errors(f"{file} cannot be written"):
        write_text(file, text)


def warn(line: str) -> None:
    """Say something on standard error, at once."""
    print(f"nse: {line}", file=sys.stderr, flush=True)


def print_table(names: Sequence[str], rows: Iterable[Iterable[str]], title: str | None = None) -> None:
    """Print a table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*names, title=title)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


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
    """Prepare the standard streams; the null device takes the place of a closed one, and its number.

    What is then printed to standard output fails, to standard error is lost; standard input stays `None`.
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
