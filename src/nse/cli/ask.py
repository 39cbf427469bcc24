"""Commands that apply a model to texts: predict, rank, translate and encode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from nse.cli import options
from nse.cli.options import make_out_option, make_texts_argument
from nse.cli.output import describe_predictions, describe_ranking, describe_translations, format_json
from nse.cli.pipeline import Result, answer_groups, answer_rows, open_run
from nse.cli.rows import CommandInput, Row, RowOrBadLine, RowSchema, group_candidates, split_chunks
from nse.data.records import BadLine
from nse.errors import InputError

if TYPE_CHECKING:
    from nse.inference.batches import Precision
    from nse.inference.inputs import Verb
    from nse.inference.model import Model

BATCH = 128
TRANSLATION_CHUNK = 512  # sentences of a file translated between two writes; `rows.CHUNK` would take a minute


def predict(
    model: options.ModelName,
    texts: Annotated[
        list[str] | None,
        make_texts_argument("Sentences or documents, or the two texts of a pair (premise and hypothesis)"),
    ] = None,
    file: options.InputFile = None,
    form: options.InputFormat = None,
    columns: options.TextColumns = None,
    name: options.IdColumn = None,
    out: Annotated[Path | None, make_out_option(".jsonl or .tsv")] = None,
    bad: options.BadLines = "stop",
    strict: options.Strict = False,
    batch: options.BatchSize = BATCH,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
    as_json: options.JsonLines = False,
) -> None:
    """Classify sentences, sentence pairs or documents."""
    command_input = CommandInput("predict", texts or (), file, form, columns, name)
    with open_run(command_input, bad, out, (".jsonl", ".tsv"), as_json, describe_predictions) as run:
        loaded = load_model(model, device, precision, "predict")
        names = loaded.inputs
        if texts and len(names) > 1:
            if len(texts) != len(names):
                wanted = f"{len(names)} texts, {' and '.join(names)}, each in quotes"
                raise InputError(f"{model}: expected {wanted}, got {len(texts)}")
            run.typed_rows = [Row(1, tuple(texts))]
        answer = partial(answer_rows, loaded, "predict", batch, strict=strict)
        run.write_results(map(answer, run.read_chunks(RowSchema(names), batch)), f"{names[0]}s")


def rank(
    model: Annotated[str, Argument(help="Path of a run or a model folder, of a model that ranks.")],
    texts: Annotated[
        list[str] | None,
        Argument(
            metavar="TEXT",
            help="Candidate answers, each in quotes; a single one is the path of a file. Without any, they "
            "are read from --file or standard input.",
        ),
    ] = None,
    question: Annotated[
        str | None,
        Option(
            help="Question, in quotes. Without it, each row of the file has a question and an answer, or in "
            "JSON Lines a question and a list of candidates."
        ),
    ] = None,
    file: options.InputFile = None,
    top: Annotated[
        int | None, Option(help="Print only the best candidates of each question, at most this many.", min=1)
    ] = None,
    form: options.InputFormat = None,
    columns: options.TextColumns = None,
    name: options.IdColumn = None,
    out: Annotated[Path | None, make_out_option(".jsonl or .tsv")] = None,
    bad: options.BadLines = "stop",
    strict: options.Strict = False,
    batch: options.BatchSize = BATCH,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
    as_json: options.JsonLines = False,
) -> None:
    """Rank candidate answers to one or many questions, the best first."""
    if texts and len(texts) == 1 and file is None:
        file, texts = Path(texts[0]), None
    if texts and question is None:
        raise InputError("rank: candidates need a --question")
    command_input = CommandInput("rank", texts or (), file, form, columns, name)
    with open_run(command_input, bad, out, (".jsonl", ".tsv"), as_json, describe_ranking) as run:
        loaded = load_model(model, device, precision, "rank")
        if question is None:
            groups = group_candidates(run.read_rows(RowSchema(("question", "answer"), list_key="candidates")))
        else:
            groups = iter([list(run.read_rows(RowSchema(("answer",))))])
        answer = partial(answer_groups, loaded, question, batch, top=top, strict=strict)
        run.write_results(map(answer, split_chunks(groups)), "candidates")


def translate(
    model: Annotated[str, Argument(help="Name of a shipped translator, or path of a run or a model folder.")],
    texts: Annotated[list[str] | None, make_texts_argument("Sentences")] = None,
    file: options.InputFile = None,
    form: options.InputFormat = None,
    columns: options.TextColumns = None,
    name: options.IdColumn = None,
    beam: options.Beam = None,
    people: Annotated[
        bool,
        Option(
            "--detokenize/--tokens",
            help="Print normal text, or the tokens separated by spaces, as BLEU is computed.",
        ),
    ] = True,
    batch: Annotated[
        int,
        Option(
            help="Batch size, counted in beams. From a pipe this many lines are read before any is answered; "
            "with 1 each line is answered immediately.",
            min=1,
        ),
    ] = 64,
    out: Annotated[Path | None, make_out_option(".txt, .jsonl or .tsv")] = None,
    bad: options.BadLines = "stop",
    strict: options.Strict = False,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
    as_json: options.JsonLines = False,
) -> None:
    """Translate sentences, one line of output per line of input."""
    command_input = CommandInput("translate", texts or (), file, form, columns, name, "sentences")
    with open_run(command_input, bad, out, (".txt", ".jsonl", ".tsv"), as_json, describe_translations) as run:
        loaded = load_model(model, device, precision, "translate")

        def answer(rows: Sequence[RowOrBadLine]) -> list[Result]:
            results = answer_rows(loaded, "translate", batch, rows, beam=beam, strict=strict)
            for result in results:
                if not people and not isinstance(result, BadLine):
                    result["translation"] = " ".join(result["words"])
            return results

        run.warns_of_truncation = out is None
        run.write_results(
            map(answer, run.read_chunks(RowSchema(loaded.inputs, keeps_blank=True), batch, TRANSLATION_CHUNK))
        )


def encode(
    model: options.ModelName,
    texts: Annotated[list[str] | None, make_texts_argument("Sentences or documents")] = None,
    file: options.InputFile = None,
    form: options.InputFormat = None,
    columns: options.TextColumns = None,
    name: options.IdColumn = None,
    out: Annotated[Path | None, make_out_option(".npy, .parquet or .jsonl")] = None,
    bad: options.BadLines = "stop",
    strict: options.Strict = False,
    batch: options.BatchSize = BATCH,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
    as_json: Annotated[bool, Option("--json", help="Print JSON Lines, which is the default here.")] = False,
    ray: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Compute on a Ray cluster: auto, HOST:PORT, or local for this machine.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            help="Number of Ray workers; by default one for each GPU, or for each CPU if there is no GPU.",
            min=1,
        ),
    ] = None,
) -> None:
    """Encode each text as a vector with the model's encoder."""
    if workers and not ray:
        raise InputError("--workers: only with --ray")
    command_input = CommandInput("encode", texts or (), file, form, columns, name)
    with open_run(command_input, bad, out, (".npy", ".parquet", ".jsonl"), as_json, format_json) as run:
        loaded = load_model(model, "cpu" if ray else device, precision, "encode")
        names = loaded.inputs if len(loaded.inputs) == 1 else ("text",)
        chunks = run.read_chunks(RowSchema(names), batch)
        if ray:
            from nse.cli import ray as cluster

            if run.source is None or run.source.is_stdin or not run.source.is_regular:
                raise InputError("--ray: needs a --file")
            settings = cluster.WorkerSettings(model, device, strict, batch, precision)
            results = cluster.answer_chunks(ray, workers, chunks, settings)
        else:
            results = map(partial(answer_rows, loaded, "encode", batch, strict=strict), chunks)
        run.write_results(results, f"{names[0]}s")


def load_model(name: str, device: str, precision: Precision, verb: Verb) -> Model:
    """Load a model for a verb; on a CPU use all cores."""
    from nse import load
    from nse.inference.batches import use_thread_pool

    model = load(name, device, precision=precision)
    if model.device.type == "cpu":
        use_thread_pool()
    model.require(verb)
    return model
