"""The commands that ask a model: predict, rank, translate and encode. Rows in, answers out, as they come."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nse.cli.bulk_run import Bad, Given, begun
from nse.cli.people import describe_predictions, describe_ranking
from nse.cli.rows import CHUNK, in_chunks
from nse.cli.writing import json_line
from nse.data.records import Format
from nse.errors import InputError

if TYPE_CHECKING:
    from nse.inference import folder as hub

SENTENCES = 512
"""Sentences of a file that are translated before they are written; `CHUNK` would take a minute."""

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
Model = Annotated[str, typer.Argument(help="A shipped model's name, a run or a model folder.")]
File = Annotated[
    Path | None,
    typer.Option(
        help="Read rows from this file, - is standard input: JSON Lines, TSV or CSV by its ending, or else a "
        "text a line. .gz, .xz and .bz2 are opened.",
        show_default=False,
    ),
]
Form = Annotated[
    Format | None,
    typer.Option("--format", help="How rows are written, whatever the file's name.", show_default=False),
]
Named = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="What the model's texts are called in the file, such as premise=sentence1,hypothesis=sentence2.",
        show_default=False,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column of what rows are called, which answers repeat; id by default, if there is one.",
        show_default=False,
    ),
]
OnBad = Annotated[
    Bad,
    typer.Option(
        "--bad", help="A line that cannot be read or answered stops the run, or is told and left out."
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(help="Texts computed at a time; 128 by default.", min=1, show_default=False),
]
Lines = Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")]


def out_option(endings: str) -> Any:
    """The option that says where answers are written."""
    return typer.Option(
        "--out",
        metavar="FILE",
        help=f"Write the answers to this file instead, ending in {endings}, whole or not at all.",
        show_default=False,
    )


def texts_argument(what: str) -> Any:
    """The argument that texts are given by."""
    return typer.Argument(
        metavar="TEXT",
        help=f"{what}, each in quotes; without any, --file or the lines of standard input are read.",
        show_default=False,
    )


def predict(
    model: Model,
    texts: Annotated[
        list[str] | None,
        texts_argument("Sentences or documents, or the two texts of a pair, as a premise and a hypothesis"),
    ] = None,
    file: File = None,
    form: Form = None,
    columns: Named = None,
    name: Id = None,
    out: Annotated[Path | None, out_option(".jsonl or .tsv")] = None,
    bad: OnBad = Bad.stop,
    strict: Strict = False,
    batch: Batch = None,
    device: Where = Device.auto,
    as_json: Lines = False,
) -> None:
    """Say which labels a trained model gives to sentences, pairs of them or documents, and how sure it is."""
    given = Given("predict", texts or [], file, form, columns, name, out, bad, as_json)
    with begun(given, (".jsonl", ".tsv"), describe_predictions) as run:
        from nse.cli import answer_rows as answers
        from nse.inference import api
        from nse.inference import kinds as purpose

        loaded = ready(model, device)
        names = purpose.classified(loaded)
        if run.source is None and len(names) > 1:
            run.together(model, names)
        at_once = batch or api.BATCH
        rows = run.rows(names, f"{names[0]}s")
        run.pour(answers.labels(loaded, some, strict, at_once) for some in run.chunks(rows, at_once))


def rank(
    model: Annotated[str, typer.Argument(help="A run or a model folder, of a model that ranks.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Candidate answers, each in quotes; one alone is a file of them, as of --file. Without any, "
            "--file or the lines of standard input are read.",
            show_default=False,
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(
            help="The question, in quotes. Without it, the file has questions: a column beside the answers, "
            "or of JSON Lines a list of candidates.",
            show_default=False,
        ),
    ] = None,
    file: File = None,
    top: Annotated[
        int | None,
        typer.Option(help="Tell only so many of the best of each.", min=1, show_default=False),
    ] = None,
    form: Form = None,
    columns: Named = None,
    name: Id = None,
    out: Annotated[Path | None, out_option(".jsonl or .tsv")] = None,
    bad: OnBad = Bad.stop,
    strict: Strict = False,
    batch: Batch = None,
    device: Where = Device.auto,
    as_json: Lines = False,
) -> None:
    """Order candidate answers to a question, or to many, by a trained model, the best first."""
    if texts and len(texts) == 1 and file is None:
        file, texts = Path(texts[0]), None
    if texts and question is None:
        raise InputError("rank: candidates were given and no --question")
    given = Given("rank", texts or [], file, form, columns, name, out, bad, as_json)
    with begun(given, (".jsonl", ".tsv"), describe_ranking) as run:
        from nse.cli import answer_rows as answers
        from nse.inference import api
        from nse.inference import kinds as purpose

        loaded = ready(model, device)
        purpose.ranked(loaded)
        if question is None:
            groups = answers.grouped(run.rows(("question", "answer"), "candidates", listed="candidates"))
        else:
            groups = iter([answers.Group(question, list(run.rows(("answer",), "candidates")))])
        chunks = in_chunks(groups, CHUNK, lambda group: group.rows)
        run.pour(answers.rankings(loaded, some, strict, batch or api.BATCH, top) for some in chunks)


def translate(
    model: Annotated[str, typer.Argument(help="A shipped translator's name, a run or a model folder.")],
    texts: Annotated[list[str] | None, texts_argument("Sentences")] = None,
    file: File = None,
    form: Form = None,
    columns: Named = None,
    name: Id = None,
    beam: Beam = None,
    people: Annotated[
        bool,
        typer.Option(
            "--detokenize/--tokens",
            help="Tell a text as people write it, or its words with spaces between, as BLEU takes them.",
        ),
    ] = True,
    batch: Annotated[
        int,
        typer.Option(
            help="Translations followed at a time. Of a pipe so many lines are read, then their translations "
            "printed: 1 answers each at once.",
            min=1,
        ),
    ] = 64,
    out: Annotated[Path | None, out_option(".txt, .jsonl or .tsv")] = None,
    bad: OnBad = Bad.stop,
    strict: Strict = False,
    device: Where = Device.auto,
    as_json: Lines = False,
) -> None:
    """Translate sentences by a trained model: for each line one line, in the same order, as they come."""
    given = Given("translate", texts or [], file, form, columns, name, out, bad, as_json, "sentences")
    with begun(given, (".txt", ".jsonl", ".tsv"), lambda rows: [row["translation"] for row in rows]) as run:
        from nse.cli import answer_rows as answers
        from nse.inference import kinds as purpose

        loaded = ready(model, device)
        names = purpose.translator(loaded)[:1]
        rows = run.rows(names, "", every=True)
        chunks = run.chunks(rows, batch, SENTENCES)
        run.tells_cuts = out is None
        run.pour(answers.translations(loaded, some, strict, batch, beam, people) for some in chunks)


def encode(
    model: Model,
    texts: Annotated[list[str] | None, texts_argument("Sentences or documents")] = None,
    file: File = None,
    form: Form = None,
    columns: Named = None,
    name: Id = None,
    out: Annotated[Path | None, out_option(".npy, .parquet or .jsonl")] = None,
    bad: OnBad = Bad.stop,
    strict: Strict = False,
    batch: Batch = None,
    device: Where = Device.auto,
    as_json: Annotated[bool, typer.Option("--json", help="What is printed is JSON Lines anyway.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Let the workers of a Ray cluster compute: auto, HOST:PORT, or local for this machine.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="With --ray: how many, each with a model; by default as many as there are GPUs, else CPUs.",
            min=1,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a vector of each text: what a trained model's encoder makes of it, pooled as the model does it."""
    if workers and not ray:
        raise InputError("encode: --workers belongs to --ray")
    given = Given("encode", texts or [], file, form, columns, name, out, bad, as_json)
    with begun(given, (".npy", ".parquet", ".jsonl"), lambda rows: map(json_line, rows)) as run:
        from nse.cli import answer_rows as answers
        from nse.cli import ray as cluster
        from nse.inference import api
        from nse.inference import kinds as purpose

        loaded = ready(model, Device.cpu if ray else device)
        names = purpose.columns(loaded)
        wanted = names[:1] if len(names) == 1 or loaded.target else ("text",)
        at_once = batch or api.BATCH
        if ray:
            reading = cluster.Reading(*run.reading(wanted, f"{wanted[0]}s"))
            asking = cluster.Asking(model, device.value, strict, at_once)
            run.pour(cluster.vectors(ray, workers, reading, asking))
        else:
            chunks = run.chunks(run.rows(wanted, f"{wanted[0]}s"), at_once)
            run.pour(answers.vectors(loaded, some, strict, at_once) for some in chunks)


def ready(model: str, device: Device) -> hub.Model:
    """A model, loaded, as it computes fastest in a process that does nothing else."""
    from nse.inference.batches import side_by_side
    from nse.inference.model import load

    loaded = load(model, device.value).quick
    if next(loaded.model.parameters()).device.type == "cpu":
        side_by_side()
    return loaded


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))
