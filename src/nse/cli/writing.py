"""Answers into files, some rows at a time, each file there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy

from nse.console import exit_by_signal, handle_signals
from nse.errors import InputError, RunError, explain_errors
from nse.files import open_replacement

Answer = dict[str, Any]


class Writer(Protocol):
    """Writes answers, some rows at a time, and ends its file."""

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""

    def close(self) -> None:
        """Write what belongs to the end."""


@contextmanager
def written(file: Path, endings: Sequence[str]) -> Iterator[Writer]:
    """A writer for a file, of the format that its name tells; the file takes its name when all is in it.

    Args:
        file: Where to; a file that is there is replaced.
        endings: Those of the names that may be asked for.

    Raises:
        InputError: It ends otherwise, or a library is missing that is needed for it.
        RunError: It cannot be written; nothing is left behind, and a file that was there is as it was.
    """
    ending = file.suffix.lower()
    if ending not in endings:
        raise InputError(f"--out: expected a file ending in {', '.join(endings)}, got {file}")
    with whole(file) as handle:
        if ending in (".npy", ".parquet") and not handle.seekable():
            raise InputError(f"--out: {file} is a pipe, which can take .jsonl, but not {ending}")
        writer = WRITERS[ending](handle)
        try:
            yield writer
            writer.close()
        except BaseException:
            if isinstance(writer, Parquet):
                writer.give_up()
            raise


@contextmanager
def whole(file: Path) -> Iterator[IO[bytes]]:
    """A file to write, beside its place, that takes its name in the end and is gone if anything goes wrong.

    Raises:
        RunError: It cannot be written.
    """
    end = handle_signals(exit_by_signal, "SIGTERM", "SIGHUP")  # as an error: nothing half is left behind
    with explain_errors(f"{file} cannot be written"), end:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(file, alone=True) as handle:
            yield handle


def json_line(row: Mapping[str, Any]) -> str:
    """A row as JSON, on a line, in ASCII."""
    return json.dumps(row, allow_nan=False, default=np.ndarray.tolist)


class JsonLines:
    """A JSON object a line."""

    def __init__(self, handle: IO[bytes]):
        self.handle = handle

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        self.handle.writelines(f"{json_line(row)}\n".encode() for row in rows)

    def close(self) -> None:
        """There is nothing to end."""


class Table:
    """Fields with tabs between, under a header; a tab or line break inside of a text becomes a space."""

    def __init__(self, handle: IO[bytes]):
        self.handle = handle
        self.header: list[str] = []

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more; the first row says what the columns are."""
        for row in map(flat, rows):
            if not self.header:
                self.header = list(row)
                self._line(self.header)
            self._line([row.get(name, "") for name in self.header])

    def close(self) -> None:
        """There is nothing to end."""

    def _line(self, fields: Sequence[Any]) -> None:
        texts = (" ".join(str(field).splitlines()).replace("\t", " ") for field in fields)
        self.handle.write(("\t".join(texts) + "\n").encode())


def flat(row: Answer) -> Answer:
    """A row whose values are texts and numbers: lists and dictionaries become columns or words."""
    found: Answer = {"number": row["number"], "id": row.get("id", "")}
    for name, value in row.items():
        if name == "probabilities":
            found |= {f"probability.{label}": chance for label, chance in value.items()}
        elif name == "texts":
            found |= {f"text.{place}": text for place, text in enumerate(value, start=1)}
        else:
            found[name] = " ".join(value) if isinstance(value, list) else value
    return found


class Lines:
    """Of each translation its text, a line each."""

    def __init__(self, handle: IO[bytes]):
        self.handle = handle

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        self.handle.writelines(f"{row['translation']}\n".encode() for row in rows)

    def close(self) -> None:
        """There is nothing to end."""


class Vectors:
    """Of each row its vector, as numpy's `.npy`, which `np.load` can map into memory."""

    def __init__(self, handle: IO[bytes]):
        self.handle = handle
        self.count = self.size = self.start = 0

    def write(self, rows: Sequence[Answer]) -> None:
        """Write some more."""
        some = np.stack([row["vector"] for row in rows]).astype("<f4", copy=False)
        if not self.start:
            self.size = some.shape[1]
            self.start = self._header()
        self.handle.write(some.tobytes())
        self.count += len(some)

    def close(self) -> None:
        """Write the header again, now that the number of rows is known; numpy left room for it."""
        self.handle.seek(0)
        end = self._header()
        if self.start not in (0, end):
            raise RunError(f"the header of the vectors has grown from {self.start} to {end} bytes")

    def _header(self) -> int:
        shape = (self.count, self.size)
        npy.write_array_header_1_0(self.handle, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return self.handle.tell()


class Parquet:
    """Number, id, text, vector, words, cut and unknown of each row; each call to `write` is a row group."""

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

    def give_up(self) -> None:
        """End it although the file will be gone, or the library would try to, later."""
        with suppress(Exception):
            self.close()


COUNTS = ("words", "cut", "unknown")

WRITERS: dict[str, Callable[[IO[bytes]], Writer]] = {
    ".jsonl": JsonLines,
    ".tsv": Table,
    ".txt": Lines,
    ".npy": Vectors,
    ".parquet": Parquet,
}
"""Who writes which files, by the ending of their names."""
