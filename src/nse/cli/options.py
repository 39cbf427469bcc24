"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from nse.data.records import Format

Device = Literal["auto", "cpu", "cuda"]
Bad = Literal["stop", "skip"]
"""Stop at a line that cannot be read or answered, or skip it."""

Model = Annotated[str, Argument(help="A shipped model's name, a run or a model folder.")]
Where = Annotated[Device, Option(help="auto is a CUDA device where there is one.")]
Strict = Annotated[
    bool, Option("--strict", help="Refuse a text that is longer than the model reads; else it is cut.")
]
Beam = Annotated[
    int | None,
    Option(
        help="Of a translator: how many translations of a sentence are followed at a time; as the model is "
        "configured by default.",
        min=1,
    ),
]
Batch = Annotated[int, Option(help="Texts computed at a time; 128 by default.", min=1, show_default=False)]

Data = Annotated[Path | None, Option(help="The data folder; NSE_DATA by default, else ./data.")]
Roles = Annotated[
    str | None,
    Option("--columns", metavar="ROLE=COLUMN,...", help="Its columns, such as text=review,label=stars."),
]
Json = Annotated[bool, Option("--json", help="Print JSON for programs instead of a table.")]

File = Annotated[
    Path | None,
    Option(
        help="Read rows from this file, - is standard input: JSON Lines, TSV or CSV by its ending, or else a "
        "text a line. .gz, .xz and .bz2 are opened."
    ),
]
Form = Annotated[Format | None, Option("--format", help="How rows are written, whatever the file's name.")]
Columns = Annotated[
    str | None,
    Option(
        metavar="NAME=COLUMN,...",
        help="What the model's texts are called in the file, such as premise=sentence1,hypothesis=sentence2.",
    ),
]
Id = Annotated[
    str | None,
    Option(
        "--id",
        metavar="COLUMN",
        help="The column of what rows are called, which answers repeat; id by default, if there is one.",
    ),
]
OnBad = Annotated[
    Bad,
    Option("--bad", help="A line that cannot be read or answered stops the run, or is told and left out."),
]
Lines = Annotated[bool, Option("--json", help="Print a JSON object on each line.")]


def out_option(endings: str) -> Any:
    """Make the option that says where answers are written."""
    about = f"Write the answers to this file instead, ending in {endings}, whole or not at all."
    return Option("--out", metavar="FILE", help=about)


def texts_argument(what: str) -> Any:
    """Make the argument that texts are given by."""
    rest = "each in quotes; without any, --file or the lines of standard input are read."
    return Argument(metavar="TEXT", help=f"{what}, {rest}")
