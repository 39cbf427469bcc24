"""The commands of experiments: demo, recipes, train, evaluate and table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from nse.cli import options
from nse.cli.output import check_output, print_json, print_result, print_table, warn
from nse.errors import InputError


def demo(
    quick: Annotated[bool, Option(help="Tiny sizes, to see that everything works.")] = False,
    seed: Annotated[int | None, Option(help="Another random start.")] = None,
    page: Annotated[
        Path, Option(metavar="FILE", help="Where to write the page of what the memory did.")
    ] = Path("runs/demo.html"),
    as_json: options.Json = False,
) -> None:
    """Train an NSE, an LSTM and a bag of words on the built-in corpus, and show what the memory did."""
    check_output(page)
    from rich.console import Console

    from nse.train.demo import demo as run  # imports torch, which takes a second
    from nse.train.progress import Progress

    with Progress() as progress:
        rows = run(Console(stderr=as_json), progress, page, quick, seed)
    if as_json:
        print_json(rows)


def recipes(as_json: options.Json = False) -> None:
    """List the recipes, each an experiment that `nse train` can run."""
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
            help="A recipe's name, such as logic/nse, or the path of a TOML file. With --resume --out RUN it "
            "may be left out."
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="A new folder for the run; runs/RECIPE by default.")] = None,
    assignments: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the recipe, such as train.lr=1e-3. Repeatable.",
        ),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Go on with the run in that folder, from its checkpoint.")
    ] = False,
    data: options.Data = None,
    train_file: Annotated[
        str | None,
        Option("--train", metavar="FILE", help="Of your own data: what to train on; .jsonl, .tsv or .csv."),
    ] = None,
    dev_file: Annotated[
        str | None,
        Option("--dev", metavar="FILE", help="Likewise to choose by; else a part of --train is held out."),
    ] = None,
    test_file: Annotated[
        str | None, Option("--test", metavar="FILE", help="Likewise to report on, at the end.")
    ] = None,
    columns: options.Roles = None,
    as_json: options.Json = False,
) -> None:
    """Train one model by its recipe into a new folder. Ctrl-C, SIGTERM, SIGHUP save; --resume goes on."""
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
    if is_rank_zero():  # of several processes, one speaks
        epochs = f"best epoch {result['epoch']} of {result['epochs']}, {result['parameters']:,} parameters"
        print_result(result, as_json, f"{run_figures(result)}, {epochs}, {result['seconds']:.0f} s: {folder}")


def find_recipe(run: Path | None) -> str:
    """Return the recipe file of the run to go on with, where no recipe was named."""
    if run is None:
        raise InputError("train: name a recipe (nse recipes lists them), or go on with --resume --out RUN")
    if not (run / "recipe.toml").is_file():
        raise InputError(f"train: {run} holds no run, for it has no recipe.toml: name a recipe to begin one")
    return str(run / "recipe.toml")


def run_figures(result: dict[str, Any]) -> str:
    """Describe the figures of a run, in a part of a line."""
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
        str | None, Argument(help="A run, a model folder, or the name of a shipped model.")
    ] = None,
    split: Annotated[
        str | None,
        Option(help="Of its data set; test by default, of your own dev where there is no test."),
    ] = None,
    on: Annotated[
        str | None,
        Option(
            metavar="DATA",
            help="Of a translator: another data set of translations. Of your own data: another file.",
        ),
    ] = None,
    columns: options.Roles = None,
    data: options.Data = None,
    batch: Annotated[int, Option(help="Rows at a time.", min=1)] = 512,
    beam: options.Beam = None,
    device: options.Where = "auto",
    trec: Annotated[
        Path | None,
        Option(
            metavar="PREFIX", help="Of a model that ranks: write its scores to PREFIX.run and PREFIX.qrels."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Instead of a model: score what was written before, a run's folder or one .run file.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        Option(help="With --scores FILE: the right answers, if they are not in a .qrels beside it."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score a model on a split of the data set that it was trained on, or --scores that were written."""
    if (model is None) == (scores is None):
        raise InputError("evaluate: give either a model, or --scores with a run's folder or a .run file")
    if scores is not None:
        from nse.train.scores import describe_scores, evaluate_scores

        of_models = ("split", "on", "columns", "data", "batch", "beam", "device", "trec")
        refuse_given(context, of_models, "--scores, where no model is run")
        report = evaluate_scores(scores, qrels)
        print_result(report, as_json, *describe_scores(report))
        return
    refuse_given(context, ("qrels",), "a model: it belongs to --scores")
    from nse.train.evaluate import describe_evaluation
    from nse.train.evaluate import evaluate as score

    result = score(str(model), split, data, batch, device, trec=trec, on=on, beam=beam, columns=columns)
    print_result(result, as_json, describe_evaluation(result))


def refuse_given(context: Context, names: tuple[str, ...], beside: str) -> None:
    """Refuse options that were typed although nothing would come of them."""
    sources = {name: context.get_parameter_source(name) for name in names}
    typed = [f"--{name}" for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if typed:
        raise InputError(f"evaluate: {', '.join(typed)} cannot go with {beside}")


def table(
    tasks: Annotated[list[str], Argument(help="Whose tables, such as snli, wikiqa or sst.")],
    results: Annotated[
        Path | None, Option(help="Results of runs: every JSON below; docs/results/TASK by default.")
    ] = None,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown.")] = False,
    as_json: options.Json = False,
) -> None:
    """The paper's tables of tasks: its figures, ours over the seeds, baselines, on how much data."""
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
