"""The command line: thin. Exit 0 done, 1 a bug, 2 the user's mistake (told without a traceback)."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import nse
from nse.cli import ask as ask_commands
from nse.cli import explore as look_commands
from nse.cli import export as export_commands
from nse.cli import serve as serve_commands
from nse.cli.ask import Device, Where, print_json
from nse.cli.data import Data, Json
from nse.cli.data import app as data_commands
from nse.cli.printing import open_standard_streams
from nse.errors import InputError, NSEError
from nse.train.signals import Stopped

app = typer.Typer(
    name="nse",
    help="Neural Semantic Encoders: train, look inside, measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data_commands, name="data")

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the recipe, such as train.rate=1e-3. Repeatable.",
    ),
]

TrainFile = Annotated[
    str | None,
    typer.Option("--train", metavar="FILE", help="Of your own data: what to train on; .jsonl, .tsv or .csv."),
]
DevFile = Annotated[
    str | None,
    typer.Option("--dev", metavar="FILE", help="Likewise to choose by; else a part of --train is held out."),
]
TestFile = Annotated[
    str | None, typer.Option("--test", metavar="FILE", help="Likewise to report on, at the end.")
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="ROLE=COLUMN,...", help="Its columns, such as text=review,label=stars."),
]


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
    page: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write the page of what the memory did.")
    ] = Path("runs/demo.html"),
    as_json: Json = False,
) -> None:
    """Train an NSE, an LSTM and a bag of words on the built-in corpus, and show what the memory did."""
    look_commands.writable(page)
    from nse.train.demo import demo as run  # imports lightning, which takes seconds
    from nse.train.progress import Progress

    console = Console(stderr=as_json)
    with Progress() as progress:
        rows = run(console, progress, page, quick, seed)
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
        str | None,
        typer.Argument(
            help="A recipe's name, such as logic/nse, or the path of a TOML file. With --resume --out RUN it "
            "may be left out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the run; runs/RECIPE by default.")
    ] = None,
    assignments: Set = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in that folder, from its checkpoint."),
    ] = False,
    data: Data = None,
    train_file: TrainFile = None,
    dev_file: DevFile = None,
    test_file: TestFile = None,
    columns: Columns = None,
    as_json: Json = False,
) -> None:
    """Train one model by its recipe into a new folder. Ctrl-C, SIGTERM, SIGHUP save; --resume goes on."""
    from nse.tasks import load_recipe
    from nse.tasks.own import assignments as own
    from nse.train.distributed import leads
    from nse.train.progress import Progress
    from nse.train.run import recipe_of_run
    from nse.train.run import train as run

    files = {"train": train_file, "dev": dev_file, "test": test_file}
    source = recipe or recipe_of_run(out if resume else None)
    loaded = load_recipe(source, [*(assignments or ()), *own(files, columns)])
    folder = out or Path("runs") / source.removesuffix(".toml").replace("/", "-")
    with Progress() as progress:
        result = run(recipe, loaded, folder, progress, resume=resume, data=data)
    if not leads():  # of several processes, one speaks
        return
    if as_json:
        print_json(result)
        return
    print(
        f"{run_figures(result)}, best epoch {result['epoch']} of {result['epochs']}, "
        f"{result['parameters']:,} parameters, {result['seconds']:.0f} s: {folder}"
    )


def run_figures(result: dict[str, Any]) -> str:
    """The figures of a run, in a part of a line."""
    from nse.tasks import TASKS

    measure = TASKS[result["task"]].shown[0].measure
    if measure == "bleu":
        return ", ".join(f"{name} BLEU {100 * value:.2f}" for name, value in result["bleu"].items())
    if measure == "accuracy":
        figures = {
            name: f"{100 * value:.1f}%" for name, value in result["accuracy"].items() if name != "train"
        }
        for name, value in result.get("mse", {}).items():
            figures[name] += f" MSE {value:.3f}"
        return ", ".join(f"{name} {figure}" for name, figure in figures.items())
    maps, mrrs = result["map"], result["mrr"]
    return ", ".join(f"{name} MAP {maps[name]:.4f} MRR {mrrs[name]:.4f}" for name in maps)


@app.command()
def evaluate(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(help="A run, a model folder, or the name of a shipped model.", show_default=False),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Of its data set; test by default, of your own dev where there is no test."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Of a translator: another data set of translations. Of your own data: another file.",
        ),
    ] = None,
    columns: Columns = None,
    data: Data = None,
    batch: Annotated[int, typer.Option(help="Rows at a time.", min=1)] = 512,
    beam: ask_commands.Beam = None,
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
        of_models = ["split", "on", "columns", "data", "batch", "beam", "device", "trec"]
        refuse_given(context, of_models, "--scores, where no model is run")
        evaluate_scores(scores, qrels, as_json)
        return
    refuse_given(context, ["qrels"], "a model: it belongs to --scores")
    from nse.train.evaluate import describe
    from nse.train.evaluate import evaluate as score

    result = score(str(model), split, data, batch, device.value, trec, on, beam, columns)
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


for command in (
    ask_commands.predict,
    ask_commands.encode,
    ask_commands.rank,
    ask_commands.translate,
    export_commands.export,
    look_commands.explore,
    serve_commands.serve,
):
    app.command()(command)


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
    from nse.train import results as tables

    def tell(text: str) -> None:
        print(f"nse: {text}", file=sys.stderr)

    rows = {task: tables.table(task, results or Path("docs") / "results" / task, tell) for task in tasks}
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
        look_commands.writable(out)

    def save(report: dict[str, Any], file: Path | None) -> None:
        if file:
            look_commands.write_output(file, json.dumps(report, indent=1, allow_nan=False) + "\n")

    # Stays where a run is interrupted; beside a device or a FIFO there is no place for it.
    unfinished = out.with_suffix(".unfinished.json") if out and (out.is_file() or not out.exists()) else None
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


def main() -> None:
    """Entry point: turns the user's mistakes into a message and exit 2."""
    open_standard_streams()
    try:
        try:
            app()
        finally:  # what cannot be printed is told here, not as Python ends
            sys.stdout.flush()
    except Stopped as stopped:
        with suppress(OSError):  # of a terminal that was closed
            print(f"nse: {stopped}", file=sys.stderr)
        sys.exit(stopped.code)
    except NSEError as error:
        print(f"nse: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("nse: interrupted", file=sys.stderr)
        sys.exit(130)
    except typer.Exit as ended:  # nobody reads on
        sys.exit(ended.exit_code)
