"""The commands that ask a model: predict, rank, translate and encode. Rows in, answers out, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from nse.cli import options
from nse.cli.options import out_option, texts_argument
from nse.cli.output import describe_predictions, describe_ranking, describe_translations, format_lines
from nse.cli.pipeline import Result, answer_groups, answer_rows, open_run
from nse.cli.rows import Columns, Input, Read, Row, group_candidates, split_chunks
from nse.data.records import BadLine
from nse.errors import InputError

if TYPE_CHECKING:
    from nse.inference.inputs import Verb
    from nse.inference.model import Model

BATCH = 128  # texts computed at a time, by default
SENTENCES = 512  # of a file, translated before they are written; `rows.CHUNK` would take a minute


def predict(
    model: options.Model,
    texts: Annotated[
        list[str] | None,
        texts_argument("Sentences or documents, or the two texts of a pair, as a premise and a hypothesis"),
    ] = None,
    file: options.File = None,
    form: options.Form = None,
    columns: options.Columns = None,
    name: options.Id = None,
    out: Annotated[Path | None, out_option(".jsonl or .tsv")] = None,
    bad: options.OnBad = "stop",
    strict: options.Strict = False,
    batch: options.Batch = BATCH,
    device: options.Where = "auto",
    as_json: options.Lines = False,
) -> None:
    """Say which labels a trained model gives to sentences, pairs of them or documents, and how sure it is."""
    given = Input("predict", texts or (), file, form, columns, name)
    with open_run(given, bad, out, (".jsonl", ".tsv"), as_json, describe_predictions) as run:
        loaded = load_model(model, device, "predict")
        names = loaded.inputs
        if texts and len(names) > 1:
            if len(texts) != len(names):
                wanted = f"{len(names)} texts, {' and '.join(names)}, each in quotes"
                raise InputError(f"{model} takes {wanted}; got {len(texts)}")
            run.typed = [Row(1, tuple(texts))]
        answer = partial(answer_rows, loaded, "predict", batch, strict=strict)
        run.pour(map(answer, run.chunks(Columns(names), batch)), f"{names[0]}s")


def rank(
    model: Annotated[str, Argument(help="A run or a model folder, of a model that ranks.")],
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            help="Candidate answers, each in quotes; one alone is a file of them, as of --file. Without any, "
            "--file or the lines of standard input are read.",
        ),
    ] = None,
    question: Annotated[
        str | None,
        Option(
            help="The question, in quotes. Without it, the file has questions: a column beside the answers, "
            "or of JSON Lines a list of candidates."
        ),
    ] = None,
    file: options.File = None,
    top: Annotated[int | None, Option(help="Tell only so many of the best of each.", min=1)] = None,
    form: options.Form = None,
    columns: options.Columns = None,
    name: options.Id = None,
    out: Annotated[Path | None, out_option(".jsonl or .tsv")] = None,
    bad: options.OnBad = "stop",
    strict: options.Strict = False,
    batch: options.Batch = BATCH,
    device: options.Where = "auto",
    as_json: options.Lines = False,
) -> None:
    """Order candidate answers to a question, or to many, by a trained model, the best first."""
    if texts and len(texts) == 1 and file is None:
        file, texts = Path(texts[0]), None
    if texts and question is None:
        raise InputError("rank: candidates were given and no --question")
    given = Input("rank", texts or (), file, form, columns, name)
    with open_run(given, bad, out, (".jsonl", ".tsv"), as_json, describe_ranking) as run:
        loaded = load_model(model, device, "rank")
        if question is None:
            groups = group_candidates(run.rows(Columns(("question", "answer"), listed="candidates")))
        else:
            groups = iter([list(run.rows(Columns(("answer",))))])
        answer = partial(answer_groups, loaded, question, batch, top=top, strict=strict)
        run.pour(map(answer, split_chunks(groups)), "candidates")


def translate(
    model: Annotated[str, Argument(help="A shipped translator's name, a run or a model folder.")],
    texts: Annotated[list[str] | None, texts_argument("Sentences")] = None,
    file: options.File = None,
    form: options.Form = None,
    columns: options.Columns = None,
    name: options.Id = None,
    beam: options.Beam = None,
    people: Annotated[
        bool,
        Option(
            "--detokenize/--tokens",
            help="Tell a text as people write it, or its words with spaces between, as BLEU takes them.",
        ),
    ] = True,
    batch: Annotated[
        int,
        Option(
            help="Translations followed at a time. Of a pipe so many lines are read, then their translations "
            "printed: 1 answers each at once.",
            min=1,
        ),
    ] = 64,
    out: Annotated[Path | None, out_option(".txt, .jsonl or .tsv")] = None,
    bad: options.OnBad = "stop",
    strict: options.Strict = False,
    device: options.Where = "auto",
    as_json: options.Lines = False,
) -> None:
    """Translate sentences by a trained model: for each line one line, in the same order, as they come."""
    given = Input("translate", texts or (), file, form, columns, name, "sentences")
    with open_run(given, bad, out, (".txt", ".jsonl", ".tsv"), as_json, describe_translations) as run:
        loaded = load_model(model, device, "translate")

        def answer(rows: Sequence[Read]) -> list[Result]:
            results = answer_rows(loaded, "translate", batch, rows, beam=beam, strict=strict)
            for result in results:
                if not people and not isinstance(result, BadLine):
                    result["translation"] = " ".join(result["words"])
            return results

        run.tells_cuts = out is None
        run.pour(map(answer, run.chunks(Columns(loaded.inputs, every=True), batch, SENTENCES)))


def encode(
    model: options.Model,
    texts: Annotated[list[str] | None, texts_argument("Sentences or documents")] = None,
    file: options.File = None,
    form: options.Form = None,
    columns: options.Columns = None,
    name: options.Id = None,
    out: Annotated[Path | None, out_option(".npy, .parquet or .jsonl")] = None,
    bad: options.OnBad = "stop",
    strict: options.Strict = False,
    batch: options.Batch = BATCH,
    device: options.Where = "auto",
    as_json: Annotated[bool, Option("--json", help="What is printed is JSON Lines anyway.")] = False,
    ray: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Let the workers of a Ray cluster compute: auto, HOST:PORT, or local for this machine.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            help="With --ray: how many, each with a model; by default as many as there are GPUs, else CPUs.",
            min=1,
        ),
    ] = None,
) -> None:
    """Make a vector of each text: what a trained model's encoder makes of it, pooled as the model does it."""
    if workers and not ray:
        raise InputError("encode: --workers belongs to --ray")
    given = Input("encode", texts or (), file, form, columns, name)
    with open_run(given, bad, out, (".npy", ".parquet", ".jsonl"), as_json, format_lines) as run:
        loaded = load_model(model, "cpu" if ray else device, "encode")
        names = loaded.inputs if len(loaded.inputs) == 1 else ("text",)
        chunks = run.chunks(Columns(names), batch)
        if ray:
            from nse.cli import ray as cluster

            if run.source is None or run.source.is_stdin or not run.source.is_regular:
                raise InputError("encode: with --ray give a --file")
            asking = cluster.Asking(model, device, strict, batch)
            results = cluster.answer_chunks(ray, workers, chunks, asking)
        else:
            results = map(partial(answer_rows, loaded, "encode", batch, strict=strict), chunks)
        run.pour(results, f"{names[0]}s")


def load_model(name: str, device: str, verb: Verb) -> Model:
    """Load a model that answers by this verb, to compute as fast as it can in a process of its own."""
    from nse import load
    from nse.inference.batches import use_thread_pool

    model = load(name, device)
    if model.device.type == "cpu":
        use_thread_pool()
    model.require(verb)
    return model
