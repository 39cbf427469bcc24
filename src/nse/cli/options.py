"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from nse.data.records import Format

Device = Literal["auto", "cpu", "cuda"]
OnBadLine = Literal["stop", "skip"]

ModelName = Annotated[str, Argument(help="Name of a shipped model, or path of a run or a model folder.")]
DeviceOption = Annotated[Device, Option(help="Device to compute on; auto uses CUDA if available.")]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    Option(help="Type to multiply matrices in; bfloat16 is faster and less exact, where the device has it."),
]
Strict = Annotated[
    bool,
    Option("--strict", help="Refuse texts that are longer than the model reads, instead of truncating them."),
]
Beam = Annotated[int | None, Option(help="Beam size of a translation; that of the model by default.", min=1)]
BatchSize = Annotated[int, Option(help="Batch size; 128 by default.", min=1, show_default=False)]

DataFolder = Annotated[Path | None, Option(help="Data folder; by default NSE_DATA, or ./data.")]
LabelledColumns = Annotated[
    str | None,
    Option(
        "--columns",
        metavar="ROLE=COLUMN,...",
        help="Which columns hold the texts and the label, such as text=review,label=stars.",
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]

InputFile = Annotated[
    Path | None,
    Option(
        "--file",
        help="Read texts from this file, or from standard input with -. The suffix tells the format: "
        "JSON Lines, TSV, CSV, or otherwise one text per line. .gz, .xz and .bz2 are decompressed.",
    ),
]
InputFormat = Annotated[Format | None, Option("--format", help="Format of the input, whatever its suffix.")]
TextColumns = Annotated[
    str | None,
    Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Which columns hold the texts, such as premise=sentence1,hypothesis=sentence2.",
    ),
]
IdColumn = Annotated[
    str | None,
    Option("--id", metavar="COLUMN", help="Column with an id to repeat in the answer; `id` by default."),
]
BadLines = Annotated[
    OnBadLine,
    Option("--bad", help="Stop at a line that cannot be read or answered, or skip it with a warning."),
]
JsonLines = Annotated[bool, Option("--json", help="Print JSON Lines.")]


def make_out_option(suffixes: str) -> Any:
    """Make the option for the file of the answers."""
    return Option("--out", metavar="FILE", help=f"Write the answers atomically to this file: {suffixes}.")


def make_texts_argument(texts: str) -> Any:
    """Make the argument for texts."""
    rest = "each in quotes. Without any, they are read from --file or standard input."
    return Argument(metavar="TEXT", help=f"{texts}, {rest}")
