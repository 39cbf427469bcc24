"""Run folder: everything about one training run; an existing folder is never overwritten.

recipe.toml        recipe of the run, with all values
data.json          data of the run: name, counts, fingerprint
environment.json   versions, device, number of processes
metrics.jsonl      one line per epoch; events.out.tfevents.* has the same for TensorBoard
checkpoint.pt      state to resume from; checkpoint.previous.pt is the one before it
scores/            of a ranking model: SPLIT.run and SPLIT.qrels, as trec_eval reads them
model/             model of the best epoch on dev so far, as a model folder
result.json        figures, written last: a run without it has not finished
.lock              process that is writing now, and since when
"""

from __future__ import annotations

import json
import os
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor, nn

from nse import config
from nse.data.catalogue import describe_data
from nse.errors import ConfigError, ModelError, RunError, explain_errors
from nse.files import write_text
from nse.inference import folder as hub
from nse.metrics import trec
from nse.tasks import TABLES, TASKS, read_recipe
from nse.tasks.source import OwnFiles
from nse.tasks.task import Examples, make_model_config
from nse.text.tensors import LabelledRows
from nse.train import checkpoints
from nse.train.distributed import Processes
from nse.train.environment import describe_environment, set_thread_count
from nse.train.fields import NUMBER, is_dict_of
from nse.train.lock import LOCK, lock_run
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.train.results import check_fields, read_json
from nse.train.signals import TrainingInterrupted, catch_signals
from nse.train.state import RunStorage, TrainingResult
from nse.train.train_step import NotFiniteError

RECIPE, DATA, ENVIRONMENT = "recipe.toml", "data.json", "environment.json"
MODEL, RESULT, SCORES = "model", "result.json", "scores"

FIELDS = {"task": str, "epoch": int, "epochs": int, "parameters": int, "seconds": NUMBER}  # of every result
METRICS = "metrics.jsonl"
EVENTS = "events.out.tfevents."  # without the machine's name, which TensorBoard's own writer appends
SCALARS = ("loss", "train", "dev", "rate", "examples_per_second")  # for TensorBoard
OWN_DATA_CARD = {"license": "unknown", "notes": "Whoever owns the data decides."}  # for a model's card


def train(
    name: str | None,
    recipe: Any,
    folder: Path,
    progress: Progress,
    resume: bool = False,
    data: Path | None = None,
) -> dict[str, Any]:
    """Train by a recipe into a new folder, or resume the run in it; return its result.json.

    Without a name, a resumed run keeps the name it was started with. A finished run is not changed. A run
    that a signal stops saves a checkpoint and raises `TrainingInterrupted`.
    """
    processes, task = Processes(), TASKS[recipe.task]
    progress = progress if processes.rank == 0 else Progress.silent()
    progress.name = name or folder.name
    storage = RunFolder(folder, name, recipe, progress, processes)
    with processes.explain_lost_process(storage.describe_checkpoint), ExitStack() as stack:
        processes.on_rank_zero(lambda: stack.enter_context(lock_run(folder)))
        if result := processes.on_rank_zero(lambda: find_result(folder, recipe, resume)):
            progress.print_line(f"{folder}: this run is finished")
            return result
        examples = storage.examples = processes.rank_zero_first(lambda: task.load_examples(recipe, data))
        for note in examples.about.get("notes", ()):
            progress.print_line(note)
        with catch_signals(processes.size > 1) as storage.stop_request, storage.explain_failures():
            outcome = fit(task, recipe, examples, progress, storage, processes)
            return processes.on_rank_zero(lambda: storage.save_result(outcome))


def find_result(folder: Path, recipe: Any, resume: bool) -> dict[str, Any] | None:
    """Return the result of a finished run, if the folder has one; raise RunError if it must not be used.

    The folder is created later, when the data is there: a mistake leaves nothing behind.
    """
    names: set[str] = set()
    with explain_errors(f"{folder} cannot be used"), suppress(FileNotFoundError):
        names = {file.name for file in folder.iterdir() if file.suffix != ".part"} - {LOCK}
    if not names:
        return None
    if not resume:
        message = f"{folder} is not empty: choose another folder"
        if RECIPE in names:
            raise RunError(message, ("resume",))
        raise RunError(f"{message}, or remove it")
    if RECIPE not in names:
        raise RunError(f"{folder} is not a run folder, it has no {RECIPE}: choose another folder")
    advice = ": restore it, or choose another folder"
    with explain_errors(f"{folder / RECIPE} cannot be read", advice=advice):
        content = (folder / RECIPE).read_bytes()
    check_same_recipe(folder, content, recipe)
    file = folder / RESULT
    return read_result(file, recipe.data.table) if file.exists() else None


def read_result(file: Path, task: str) -> dict[str, Any]:
    """Read the figures of a finished run."""
    try:
        result: dict[str, Any] = read_json(file)
        check_fields(file, result, FIELDS)
        if result["task"] != task:
            raise RunError(f"{file} is not a result of {task}: its task is {result['task']}")
        measures = {figure.measure for figure in TABLES[task][0].columns} & result.keys()
        check_fields(file, result, dict.fromkeys(measures, is_dict_of(NUMBER)))
    except RunError as error:
        raise RunError(f"{error}; remove it to compute it again", ("resume",)) from None
    return result


def check_same_recipe(folder: Path, content: bytes, recipe: Any) -> None:
    """Raise RunError if a recipe is not the one that the run was started with, given as TOML."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # old names of keys
            original = read_recipe(tomllib.loads(content.decode()), source=RECIPE)
    except (ConfigError, ValueError) as error:
        raise RunError(f"{folder} has a recipe that cannot be read: {error}") from None
    if changes := list(list_changes(original, recipe)):
        raise RunError(
            f"{folder} has a run of another recipe ({', '.join(changes)}): "
            "use the same recipe, or choose another folder",
            ("continue", str(folder)),
        )


def list_changes(original: Any, recipe: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys in which two recipes differ, with both values; the number of threads may change."""
    for key_field in fields(original):
        key = f"{prefix}{key_field.name}"
        old, new = getattr(original, key_field.name), getattr(recipe, key_field.name)
        if is_dataclass(old) and type(old) is type(new):
            yield from list_changes(old, new, f"{key}.")
        elif old != new and key != "train.threads":
            yield f"{key} was {old} and is now {new}"


class MetricsLog:
    """Metrics of a run's epochs: metrics.jsonl, and events for TensorBoard; both are written anew."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]]):
        self.metrics, self.events = folder / METRICS, folder / f"{EVENTS}{int(time.time())}.{os.getpid()}"
        for old_file in folder.glob(f"{EVENTS}*"):
            old_file.unlink()
        write_text(self.metrics, "")
        self.write_event(file_version="brain.Event:2")
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Write the row of one more epoch."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        values = [Summary.Value(tag=name, simple_value=row[name]) for name in SCALARS]
        self.write_event(step=row["step"], summary=Summary(value=values))

    def write_event(self, **content: Any) -> None:
        """Write a TensorBoard event, with its length and checksums."""
        with self.events.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **content).SerializeToString())


class RunFolder(RunStorage):
    """Storage of a run in its folder."""

    examples: Examples

    def __init__(self, folder: Path, name: str | None, recipe: Any, progress: Progress, processes: Processes):
        super().__init__()
        self.folder, self.recipe, self.progress, self.processes = folder, recipe, progress, processes
        self.new_name, self.name = name, name or str(folder / RECIPE)
        self.toml = config.to_toml(recipe, comments=True)
        self.last_save = time.monotonic()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the checkpoint of this run, if any; and write the files that describe the run."""
        loaded = checkpoints.load(self.folder)
        checkpoint = loaded.content if loaded else None
        if loaded:
            self.check_same_run(loaded.content)
            self.report_resume(loaded)
        threads_before = torch.get_num_threads()
        set_thread_count(self.recipe, checkpoint, self.processes)
        threads = torch.get_num_threads()
        if self.processes.device.type == "cpu" and max(threads, threads_before) > 1:
            count = "1 CPU thread" if threads == 1 else f"{threads} CPU threads"
            self.progress.print_line(f"uses {count} (train.threads changes it)")
        self.folder.mkdir(parents=True, exist_ok=True)
        if loaded and loaded.newer_error:  # or the next save would keep it as the previous one
            (self.folder / checkpoints.CURRENT).replace(self.folder / checkpoints.BAD)
        environment = describe_environment(self.processes.device, self.processes.size)
        write_text(self.folder / RECIPE, self.toml)
        write_text(self.folder / DATA, format_json(self.examples.about))
        write_text(self.folder / ENVIRONMENT, format_json(environment))
        self.log = MetricsLog(self.folder, checkpoint["metrics"] if checkpoint else [])
        return checkpoint

    def check_same_run(self, checkpoint: dict[str, Any]) -> None:
        """Raise RunError if a checkpoint is of another recipe or other data."""
        check_same_recipe(self.folder, checkpoint["recipe"].encode(), self.recipe)
        if checkpoint["data"] != self.examples.about["fingerprint"]:
            raise RunError(
                f"{self.folder} has a run on other data (see its {DATA}): "
                "use the same data, or choose another folder"
            )
        self.saved_step, self.name = checkpoint["step"], self.new_name or checkpoint["name"]

    def report_resume(self, loaded: checkpoints.LoadedCheckpoint) -> None:
        """Print where the run resumes."""
        checkpoint, size = loaded.content, self.processes.size
        if loaded.newer_error:
            self.progress.print_line(
                f"{loaded.newer_error}; it is kept as {checkpoints.BAD}, and the previous one is used"
            )
        old_size = len(checkpoint["processes"])
        change = "" if old_size == size else f"; there were {old_size} processes, now {size}"
        position = f"step {checkpoint['step']} (epoch {checkpoint['epoch']}) from {loaded.file.name}"
        self.progress.print_line(f"resumed after {position}{change}")

    def is_save_due(self) -> bool:
        """Return whether the last checkpoint is too old."""
        return time.monotonic() - self.last_save >= 60 * float(self.recipe.train.checkpoint_minutes)

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Write a checkpoint."""
        about = {"name": self.name, "recipe": self.toml, "data": self.examples.about["fingerprint"]}
        checkpoints.save(self.folder, checkpoint | about)
        self.last_save = time.monotonic()

    def save_model(self, model: nn.Module, figures: dict[str, Any]) -> None:
        """Write the model folder, with these figures in its card."""
        examples, model_config = self.examples, make_model_config(self.recipe, self.examples)
        about = {"recipe": self.name, "seed": self.recipe.seed}
        about |= {"training examples": examples.about["counts"]["train"]}
        is_own_data = isinstance(self.recipe.data, OwnFiles)
        about |= OWN_DATA_CARD if is_own_data else describe_data(model_config.data)
        hub.save(
            self.folder / MODEL, model, model_config, examples.vocabulary, about | figures, examples.target
        )

    def save_epoch(self, row: dict[str, Any], best_model: nn.Module | None) -> None:
        """Write the metrics of an epoch, and the model folder if it is the best one."""
        if best_model is not None:
            figures = {"accuracy": {"train": row["train"]}}
            figures.setdefault(TASKS[self.recipe.task].columns[0].measure, {})["dev"] = row["dev"]
            self.save_model(best_model, {"epoch": row["epoch"]} | figures)
        self.log.add(row)

    def save_scores(self, scores: Mapping[str, Tensor], splits: Mapping[str, LabelledRows]) -> None:
        """Write the scores of a ranking model in the format of trec_eval."""
        for name, split_scores in scores.items():
            split = splits[name]
            if split.groups is not None:
                (self.folder / SCORES).mkdir(exist_ok=True)
                columns = split_scores[:, 0], split.groups, split.labels
                trec.write_trec(self.folder / SCORES / name, *(column.numpy() for column in columns))

    def save_result(self, outcome: TrainingResult) -> dict[str, Any]:
        """Write the final model and result.json, and return the result."""
        environment = describe_environment(self.processes.device, self.processes.size)
        counts = self.examples.about["counts"]
        figures = {
            "epoch": outcome.epoch,
            **outcome.figures,
            "parameters": outcome.parameters,
            "parameters_without_embeddings": outcome.parameters_without_embeddings,
        }
        result = {
            "recipe": self.name,
            "task": self.recipe.data.table,
            "seed": self.recipe.seed,
            "epoch": outcome.epoch,
            "epochs": len(outcome.metrics),
            **figures,
            "seconds": round(outcome.seconds, 2),
            "seconds_per_epoch": round(outcome.seconds_per_epoch, 4),
            "examples_per_second": round(counts["train"] / outcome.seconds_per_epoch, 1),
            "examples": counts,
            **{key: environment[key] for key in ("device", "processes", "nse", "torch")},
            "data": self.examples.about,
        }
        self.save_model(outcome.model, figures)
        write_text(self.folder / RESULT, format_json(result))
        return result

    def describe_checkpoint(self) -> str:
        """Return which checkpoint there is to resume from, for messages."""
        if self.saved_step is None:
            return "there is no checkpoint yet"
        return f"the last checkpoint is from step {self.saved_step}"

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Add to an error in the block which checkpoint there is, and what to do."""
        try:
            yield
        except TrainingInterrupted as stopped:
            if self.processes.rank:
                raise SystemExit(stopped.code) from None  # rank 0 prints the message
            message = f"stopped; {self.describe_checkpoint()}"
            raise TrainingInterrupted(stopped.code, message, ("resume",)) from None
        except NotFiniteError as error:
            raise RunError(f"{error}; {self.describe_checkpoint()}") from None
        except (OSError, ModelError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                reason = f"{self.folder} cannot be written: {error.strerror or error}"
            message = f"{reason}; {self.describe_checkpoint()}; free disk space"
            raise RunError(message, ("resume",)) from error


def format_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
