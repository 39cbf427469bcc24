"""The command line: thin. Exit 0 done, 1 a bug, 2 the user's mistake (told without a traceback)."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import nse
from nse.data_commands import Data, Json
from nse.data_commands import app as data_commands
from nse.errors import DataError, InputError, NSEError, RunError
from nse.files import make_sure, write
from nse.train.signals import Stopped

app = typer.Typer(
    name="nse",
    help="Neural Semantic Encoders: train, look inside, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data_commands, name="data")

Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a text that is longer than the model reads; else it is cut.")
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the recipe, such as train.rate=1e-3. Repeatable.",
    ),
]


class Device(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


Where = Annotated[Device, typer.Option(help="auto is a CUDA device where there is one.")]


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"nse {nse.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural Semantic Encoders: train, look inside, measure."""


@app.command()
def demo(
    quick: Annotated[bool, typer.Option(help="Tiny sizes, to see that everything works.")] = False,
    seed: Annotated[int | None, typer.Option(help="Another random start.")] = None,
    as_json: Json = False,
) -> None:
    """Train an NSE, an LSTM and a bag of words on the built-in corpus, and show what the memory did."""
    from nse.train.demo import demo as run  # imports lightning, which takes seconds
    from nse.train.progress import Progress

    console = Console(stderr=as_json)
    with Progress() as progress:
        rows = run(console, progress, quick, seed)
    if as_json:
        print_json(rows)


@app.command()
def recipes(as_json: Json = False) -> None:
    """List the recipes, each an experiment that `nse train` can run."""
    from nse.tasks.recipe import headline
    from nse.tasks.recipe import recipes as found

    rows = [{"recipe": name, "about": headline(file)} for name, file in found().items()]
    if as_json:
        print_json(rows)
        return
    table = Table("recipe", "about")
    for row in rows:
        table.add_row(row["recipe"], row["about"])
    Console().print(table)


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name, such as logic/nse, or the path of a TOML file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the run; runs/RECIPE by default.")
    ] = None,
    assignments: Set = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Train one model by its recipe into a new folder. Ctrl-C and SIGTERM save first; --resume goes on."""
    from nse.tasks import load_recipe
    from nse.train.distributed import leads
    from nse.train.progress import Progress
    from nse.train.run import train as run

    loaded = load_recipe(recipe, assignments or ())
    folder = out or Path("runs") / recipe.removesuffix(".toml").replace("/", "-")
    with Progress() as progress:
        result = run(recipe, loaded, folder, progress, resume=resume, data=data)
    if not leads():  # of several processes, one speaks
        return
    if as_json:
        print_json(result)
        return
    print(
        f"{run_figures(result, folder)}, best epoch {result['epoch']} of {result['epochs']}, "
        f"{result['parameters']:,} parameters, {result['seconds']:.0f} s: {folder}"
    )


def run_figures(result: dict[str, Any], folder: Path) -> str:
    """The figures of a run, in a part of a line."""
    from nse.tasks import TASKS

    if TASKS[result["task"]].shown[0].measure == "accuracy":
        figures = {name: value for name, value in result["accuracy"].items() if name != "train"}
        return ", ".join(f"{name} {100 * value:.1f}%" for name, value in figures.items())
    if "map" not in result:
        later = f"type `nse evaluate --scores {folder}` where trec_eval is installed"
        return f"scores in {folder / 'scores'} ({later})"
    maps, mrrs = result["map"], result["mrr"]
    return ", ".join(f"{name} MAP {maps[name]:.4f} MRR {mrrs[name]:.4f}" for name in maps)


@app.command()
def evaluate(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(help="A run, a model folder, or the name of a shipped model.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of its data set.")] = "test",
    data: Data = None,
    batch: Annotated[int, typer.Option(help="Rows at a time.", min=1)] = 512,
    device: Where = Device.auto,
    trec: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX", help="Of a model that ranks: write its scores to PREFIX.run and PREFIX.qrels."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Instead of a model: score what was written before, a run's folder or one .run file.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(help="With --scores FILE: the right answers, if they are not in a .qrels beside it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score a model on a split of the data set that it was trained on, or --scores that were written."""
    if (model is None) == (scores is None):
        raise InputError("evaluate: give either a model, or --scores with a run's folder or a .run file")
    if scores is not None:
        refuse_given(context, ["split", "data", "batch", "device", "trec"], "--scores, where no model is run")
        evaluate_scores(scores, qrels, as_json)
        return
    refuse_given(context, ["qrels"], "a model: it belongs to --scores")
    from nse.train.evaluate import describe
    from nse.train.evaluate import evaluate as score

    result = score(str(model), split, data, batch, device.value, trec)
    if as_json:
        print_json(result)
    else:
        print(describe(result))


def evaluate_scores(scores: Path, qrels: Path | None, as_json: bool) -> None:
    """Print the figures of scores that were written before."""
    from nse.train.scores import describe, score

    result = score(scores, qrels)
    if as_json:
        print_json(result)
    else:
        print(*describe(result), sep="\n")


def refuse_given(context: typer.Context, names: list[str], beside: str) -> None:
    """Refuse options that were typed although nothing would come of them."""
    sources = {name: context.get_parameter_source(name) for name in names}
    typed = [f"--{name}" for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if typed:
        raise InputError(f"evaluate: {', '.join(typed)} cannot go with {beside}")


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A shipped model's name, a run or a model folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Sentences, each in quotes; the lines of standard input by default. A model of pairs takes "
            "two, such as a premise and a hypothesis.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    device: Where = Device.auto,
    as_json: Json = False,
) -> None:
    """Say which label a trained model gives to sentences, or to a pair of them, and how sure it is."""
    from nse import api, hub

    loaded = hub.load(model, device.value)
    columns = api.classified(loaded)
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
            numbers, items = lines_of(None, "sentences")
        rows = api.predict(loaded, items, strict=strict, numbers=numbers)
    if as_json:
        print_json(rows)
    else:
        print(*api.describe_predictions(rows), sep="\n")


@app.command()
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
    from nse import api, hub

    loaded = hub.load(model, device.value)
    api.ranked(loaded)  # before anything is read
    numbers, candidates = lines_of(file, "candidates")
    rows = api.rank(loaded, question, candidates, strict=strict, numbers=numbers)[:top]
    if as_json:
        print_json(rows)
    else:
        print(*api.describe_ranking(rows), sep="\n")


def lines_of(file: Path | None, what: str) -> tuple[list[int], list[str]]:
    """The lines of a file or of standard input that are not blank, and their numbers from 1."""
    given = None if file == Path("-") else file
    name = str(given or "standard input")
    try:
        content = given.read_bytes() if given else sys.stdin.buffer.read()
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
    found = {}
    for number, line in enumerate(content.removeprefix(BOM_UTF8).split(b"\n"), start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise DataError(f"{name}: line {number}: is not UTF-8") from None
        if text:
            found[number] = text
    if not found:
        raise DataError(f"{name}: there are no {what} in it; write one on each line")
    return list(found), list(found.values())


@app.command()
def table(
    tasks: Annotated[list[str], typer.Argument(help="Whose tables, such as snli, wikiqa or sst.")],
    results: Annotated[
        Path | None, typer.Option(help="Results of runs: every JSON below; docs/results/TASK by default.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """The paper's tables of tasks: its figures, ours over the seeds, baselines, on how much data."""
    from nse.tasks import tables

    rows = {task: tables.table(task, results or Path("docs") / "results" / task) for task in tasks}
    if as_json:
        print_json([row for each in rows.values() for row in each])
    elif markdown:
        print("\n".join(tables.markdown(task, each) for task, each in rows.items()), end="")
    else:
        for task, each in rows.items():
            Console().print(tables.shown(task, each))


@app.command()
def bench(
    device: Annotated[
        Device, typer.Option(help="Where to measure; auto is a CUDA device where there is one.")
    ] = Device.auto,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this JSON file as well.")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes, to see that everything works.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads, on the CPU.", min=1)] = 2,
    as_json: Json = False,
) -> None:
    """Time the backends side by side, after checking that they agree."""
    from nse import bench as benchmark

    if out:  # minutes of measuring are not lost to a place that cannot be written
        try:
            make_sure(out)
        except OSError as error:
            raise RunError(f"{out} cannot be written: {error.strerror}") from None

    def save(report: dict[str, Any], file: Path | None) -> None:
        if file:
            write(file, json.dumps(report, indent=1, allow_nan=False) + "\n")

    unfinished = out.with_suffix(".unfinished.json") if out else None  # stays where a run is interrupted
    report = benchmark.run(
        quick=quick,
        threads=threads,
        log=Console(stderr=True),
        device=device.value,
        save=lambda so_far: save(so_far, unfinished),
    )
    save(report, out)
    if unfinished:
        unfinished.unlink(missing_ok=True)
    if as_json:
        print_json(report)
    else:
        Console().print(benchmark.table(report))


def print_json(value: Any) -> None:
    """Print a value for programs."""
    print(json.dumps(value, indent=2, allow_nan=False))


def main() -> None:
    """Entry point: turns the user's mistakes into a message and exit 2."""
    try:
        app()
    except Stopped as stopped:
        print(f"nse: {stopped}", file=sys.stderr)
        sys.exit(stopped.code)
    except NSEError as error:
        print(f"nse: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
