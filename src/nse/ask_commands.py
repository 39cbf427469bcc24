"""The commands that ask a model: predict, rank and translate."""

from __future__ import annotations

import json
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from nse.data_commands import Json
from nse.errors import DataError, InputError, RunError

SHOWN = 200
"""Characters of a text that are shown to a person."""

LONGEST_LINE = 1 << 20
"""Bytes: no sentence comes near, and a file without line breaks does not fill the memory."""

BROKEN_PIPE = 141
"""The exit code of a program that a broken pipe ended, as shells tell it."""

Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a text that is longer than the model reads; else it is cut.")
]


Beam = Annotated[
    int | None,
    typer.Option(
        help="Of a translator: how many translations of a sentence are followed at a time; as the model is "
        "configured by default.",
        min=1,
        show_default=False,
    ),
]


class Device(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


Where = Annotated[Device, typer.Option(help="auto is a CUDA device where there is one.")]


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def predict(
    model: Annotated[str, typer.Argument(help="A shipped model's name, a run or a model folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Sentences or documents, each in quotes; the lines of standard input by default. A model of "
            "pairs takes two, such as a premise and a hypothesis.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    device: Where = Device.auto,
    as_json: Json = False,
) -> None:
    """Say which label a trained model gives to sentences, a pair of them or documents, and how sure it is."""
    from nse import api, hub, purpose

    loaded = hub.load(model, device.value)
    columns = purpose.classified(loaded)
    numbers, items = None, list(texts or [])
    if len(columns) > 1:
        if len(items) != len(columns):
            raise InputError(
                f"{model} takes {len(columns)} texts, {' and '.join(columns)}, each in quotes; "
                f"got {len(items)}"
            )
        rows = api.predict(loaded, [(items[0], items[1])], strict=strict)
    else:
        if not items:
            numbers, items = lines_of(None, f"{columns[0]}s")
        rows = api.predict(loaded, items, strict=strict, numbers=numbers)
    if as_json:
        print_json(rows)
    else:
        print(*describe_predictions(rows), sep="\n")


def rank(
    model: Annotated[str, typer.Argument(help="A run or a model folder, of a model that ranks.")],
    question: Annotated[str, typer.Option(help="The question, in quotes.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Candidate answers in UTF-8, a line each; standard input by default and for -.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Show only so many of the best.", min=1, show_default=False)
    ] = None,
    strict: Strict = False,
    device: Where = Device.auto,
    as_json: Json = False,
) -> None:
    """Order candidate answers to a question by a trained model, the best first."""
    from nse import api, hub, purpose

    loaded = hub.load(model, device.value)
    purpose.ranked(loaded)  # before anything is read
    numbers, candidates = lines_of(file, "candidates")
    rows = api.rank(loaded, question, candidates, strict=strict, numbers=numbers)[:top]
    if as_json:
        print_json(rows)
    else:
        print(*describe_ranking(rows), sep="\n")


def translate(
    model: Annotated[str, typer.Argument(help="A shipped translator's name, a run or a model folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Sentences, each in quotes; the lines of standard input by default.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Sentences in UTF-8, a line each; - is standard input.", show_default=False),
    ] = None,
    beam: Beam = None,
    people: Annotated[
        bool,
        typer.Option(
            "--detokenize/--tokens",
            help="Print a text as people write it, or its words with spaces between, as BLEU takes them.",
        ),
    ] = True,
    batch: Annotated[
        int,
        typer.Option(
            help="Read so many lines, then print their translations. 1 answers each at once.", min=1
        ),
    ] = 64,
    strict: Strict = False,
    device: Where = Device.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")] = False,
) -> None:
    """Translate sentences by a trained model: for each line one line, in the same order, as they come."""
    from nse import api, hub, purpose

    if texts and file:
        raise InputError("translate: give either sentences, or --file, not both")
    loaded = hub.load(model, device.value)
    purpose.translator(loaded)  # before anything is read
    for row in api.translations(loaded, texts or read_lines(file), beam, batch, strict):
        if row["cut"]:
            print(f"nse: sentence {row['number']}: {row['cut']:,} words cut", file=sys.stderr)
        line = row["translation"] if people else " ".join(row["words"])
        put(json.dumps({**row, "translation": line}, allow_nan=False) if as_json else line)


def put(line: str) -> None:
    """Print a line in UTF-8, whatever the terminal says it takes, at once; end quietly if nobody reads on."""
    try:
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is left in the buffer would fail once more at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from None
        raise RunError(f"standard output cannot be written: {error.strerror}") from None


def read_lines(file: Path | None) -> Iterator[str]:
    """The lines of a file or of standard input, each as soon as it is there."""
    name, number = name_of(file), 0
    try:
        with stream(file) as handle:
            while line := handle.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    most = f"{LONGEST_LINE:,} bytes"
                    raise DataError(f"{name}: line {number}: is longer than {most}; break it up")
                yield decoded(line if number > 1 else line.removeprefix(BOM_UTF8), name, number)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None


def decoded(line: bytes, name: str, number: int) -> str:
    """The text of a line, without what ends it."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{name}: line {number}: is not UTF-8") from None


def name_of(file: Path | None) -> str:
    """What to call a file, or standard input."""
    return "standard input" if file in (None, Path("-")) else str(file)


def stream(file: Path | None) -> AbstractContextManager[IO[bytes]]:
    """A file, or standard input, which stays open."""
    return nullcontext(sys.stdin.buffer) if file in (None, Path("-")) else file.open("rb")


def lines_of(file: Path | None, what: str) -> tuple[list[int], list[str]]:
    """The lines of a file or of standard input that are not blank, and their numbers from 1."""
    try:
        with stream(file) as handle:
            content = handle.read().removeprefix(BOM_UTF8)
    except OSError as error:
        raise DataError(f"{name_of(file)}: cannot be read: {error.strerror}") from None
    lines = enumerate(content.split(b"\n"), start=1)
    texts = {number: decoded(line, name_of(file), number).strip() for number, line in lines}
    found = {number: text for number, text in texts.items() if text}
    if not found:
        raise DataError(f"{name_of(file)}: there are no {what} in it; write one on each line")
    return list(found), list(found.values())


def describe_predictions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each prediction: its label, how sure the model is, the other labels, the text."""
    told = []
    for row in rows:
        sure = sorted(row["probabilities"].items(), key=lambda each: -each[1])
        label, *others = (f"{name} {100 * share:.1f}%" for name, share in sure)
        rest = f" ({', '.join(others)})" if others else ""
        text = " | ".join(shown(text) for text in row.get("texts", [row.get("text")]))
        told.append((f"{label}{rest}", f"{text}{missed(row)}"))
    width = max((len(label) for label, _ in told), default=0)
    return [f"{label:<{width}}  {text}" for label, text in told]


def describe_ranking(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each candidate under a heading: rank, score, number, text."""
    return [
        f"{'rank':>4}  {'score':>8}  {'line':>4}  sentence",
        *(
            f"{row['rank']:>4}  {row['score']:>8.4f}  {row['number']:>4}  {shown(row['text'])}{missed(row)}"
            for row in rows
        ),
    ]


def missed(row: dict[str, Any]) -> str:
    """Which words had no say, if any."""
    unknown = f"{row['unknown']:,} of {row['words']:,} words unknown" if row["unknown"] else ""
    cut = f"{row['cut']:,} words cut" if row["cut"] else ""
    return f"  [{'; '.join(filter(None, (unknown, cut)))}]" if unknown or cut else ""


def shown(text: str) -> str:
    """A text on a line: not endless, and nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:SHOWN])
    return f"{line}..." if len(text) > SHOWN else line
