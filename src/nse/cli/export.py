"""The command that writes a model for other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nse.cli.ask import print_json
from nse.cli.data import Json


def export(
    model: Annotated[str, typer.Argument(help="A shipped model's name, a run or a model folder.")],
    onnx: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where to write the model for ONNX runtimes; its vocabulary goes beside it.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Write a classifier or a ranker as an ONNX file, checked to give the scores that it gives here."""
    from nse.inference.onnx import to_onnx  # imports torch

    told = to_onnx(model, onnx)
    if as_json:
        print_json(told)
    else:
        print(f"{told['file']}: {told['bytes']:,} bytes, scores within {told['difference']:.1e} of PyTorch's")
