"""Commands for experiments: demo, recipes, train, evaluate and table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from nse.cli import options
from nse.cli.output import check_output, print_json, print_result, print_table, warn
from nse.errors import InputError


def demo(
    quick: Annotated[bool, Option(help="Use tiny sizes, to test that everything works.")] = False,
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    page: Annotated[
        Path, Option(metavar="FILE", help="Web page to write, with pictures of the memory.")
    ] = Path("runs/demo.html"),
    as_json: options.Json = False,
) -> None:
    """Train an NSE, an LSTM and a bag of words on the built-in corpus, and show the NSE's memory."""
    check_output(page)
    from rich.console import Console

    from nse.train.demo import demo as run  # imports torch, which takes a second
    from nse.train.progress import Progress

    with Progress() as progress:
        rows = run(Console(stderr=as_json), progress, page, quick, seed)
    if as_json:
        print_json(rows)


def recipes(as_json: options.Json = False) -> None:
    """List the recipes for `nse train`."""
    from nse.tasks.recipe import list_recipes, read_headline

    about = {name: read_headline(file) for name, file in list_recipes().items()}
    if as_json:
        print_json([{"recipe": name, "about": line} for name, line in about.items()])
    else:
        print_table(("recipe", "about"), about.items())


def train(
    recipe: Annotated[
        str | None,
        Argument(
            help="Name of a recipe, such as logic/nse, or path of a TOML file. Optional with --resume --out."
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="New folder for the run; runs/RECIPE by default.")] = None,
    assignments: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a value of the recipe, such as train.lr=1e-3. Repeatable.",
        ),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue the run in the folder from its last checkpoint.")
    ] = False,
    data: options.DataFolder = None,
    train_file: Annotated[
        str | None,
        Option("--train", metavar="FILE", help="Training set of your own: .jsonl, .tsv or .csv."),
    ] = None,
    dev_file: Annotated[
        str | None,
        Option(
            "--dev",
            metavar="FILE",
            help="Dev set, to choose the best epoch by; a part of the training set by default.",
        ),
    ] = None,
    test_file: Annotated[
        str | None, Option("--test", metavar="FILE", help="Test set, to report on at the end.")
    ] = None,
    columns: options.LabelledColumns = None,
    as_json: options.Json = False,
) -> None:
    """Train a model into a new folder. Ctrl-C, SIGTERM and SIGHUP save a checkpoint; --resume continues."""
    from nse.tasks import load_recipe
    from nse.tasks.source import list_assignments
    from nse.train.distributed import is_rank_zero
    from nse.train.progress import Progress
    from nse.train.run import train as run

    files = {"train": train_file, "dev": dev_file, "test": test_file}
    source = recipe or find_recipe(out if resume else None)
    loaded = load_recipe(source, [*(assignments or ()), *list_assignments(files, columns)])
    folder = out or Path("runs") / source.removesuffix(".toml").replace("/", "-")
    with Progress() as progress:
        result = run(recipe, loaded, folder, progress, resume=resume, data=data)
    if is_rank_zero():  # of several processes
        epochs = f"best epoch {result['epoch']} of {result['epochs']}, {result['parameters']:,} parameters"
        print_result(
            result, as_json, f"{describe_figures(result)}, {epochs}, {result['seconds']:.0f} s: {folder}"
        )


def find_recipe(run: Path | None) -> str:
    """Find the recipe of the run to resume."""
    if run is None:
        raise InputError(
            "train: name a recipe (`nse recipes` lists them), or continue a run with --resume --out RUN"
        )
    if not (run / "recipe.toml").is_file():
        raise InputError(
            f"--out: {run} is not a run, because it has no recipe.toml: name a recipe to start one"
        )
    return str(run / "recipe.toml")


def describe_figures(result: dict[str, Any]) -> str:
    """Describe the figures of a run."""
    if "bleu" in result:
        return ", ".join(f"{name} BLEU {100 * value:.2f}" for name, value in result["bleu"].items())
    if "map" in result:
        maps, mrrs = result["map"], result["mrr"]
        return ", ".join(f"{name} MAP {maps[name]:.4f} MRR {mrrs[name]:.4f}" for name in maps)
    accuracies = {name: value for name, value in result["accuracy"].items() if name != "train"}
    errors = {name: f" MSE {value:.3f}" for name, value in result.get("mse", {}).items()}
    return ", ".join(f"{name} {100 * value:.1f}%{errors.get(name, '')}" for name, value in accuracies.items())


def evaluate(
    context: Context,
    model: Annotated[
        str | None, Argument(help="Name of a shipped model, or path of a run or a model folder.")
    ] = None,
    split: Annotated[
        str | None,
        Option(help="Split to score; test by default, or dev if your own data has no test set."),
    ] = None,
    on: Annotated[
        str | None,
        Option(
            metavar="DATA",
            help="Other data to score: for a translator a published data set, for your own data a file.",
        ),
    ] = None,
    columns: options.LabelledColumns = None,
    data: options.DataFolder = None,
    batch: Annotated[int, Option(help="Batch size.", min=1)] = 512,
    beam: options.Beam = None,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
    trec: Annotated[
        Path | None,
        Option(metavar="PREFIX", help="Write the scores of a ranking model to PREFIX.run and PREFIX.qrels."),
    ] = None,
    scores: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Score a run's saved scores or one .run file, instead of a model.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        Option(help="Right answers for --scores, if they are not in a .qrels file beside it."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score a model on a split of its data set, or saved scores."""
    if (model is None) == (scores is None):
        raise InputError("evaluate: give a model, or --scores with a run or a .run file")
    if scores is not None:
        from nse.train.scores import describe_scores, evaluate_scores

        of_models = ("split", "on", "columns", "data", "batch", "beam", "device", "precision", "trec")
        refuse_given(context, of_models, "--scores")
        report = evaluate_scores(scores, qrels)
        print_result(report, as_json, *describe_scores(report))
        return
    refuse_given(context, ("qrels",), "a model, only with --scores")
    from nse.train.evaluate import describe_evaluation
    from nse.train.evaluate import evaluate as score

    choices: dict[str, Any] = {"trec": trec, "on": on, "beam": beam, "columns": columns}
    result = score(str(model), split, data, batch, device, precision=precision, **choices)
    print_result(result, as_json, describe_evaluation(result))


def refuse_given(context: Context, names: tuple[str, ...], beside: str) -> None:
    """Raise an `InputError` for options without effect."""
    sources = {name: context.get_parameter_source(name) for name in names}
    typed = [f"--{name}" for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if typed:
        raise InputError(f"evaluate: {', '.join(typed)} cannot be used with {beside}")


def table(
    tasks: Annotated[list[str], Argument(help="Tasks, such as snli, wikiqa or sst.")],
    results: Annotated[
        Path | None, Option(help="Folder of results, searched for JSON files; docs/results/TASK by default.")
    ] = None,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown.")] = False,
    as_json: options.Json = False,
) -> None:
    """Compare the results of runs with the paper's tables."""
    from rich.console import Console

    from nse.train import results as tables

    rows = {
        task: tables.compute_table(task, results or Path("docs") / "results" / task, warn) for task in tasks
    }
    if as_json:
        print_json([row for of_task in rows.values() for row in of_task])
    elif markdown:
        print("\n".join(tables.format_markdown(*of_task) for of_task in rows.items()), end="")
    else:
        for of_task in rows.items():
            Console().print(tables.draw_table(*of_task))
