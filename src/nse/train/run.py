"""A run is a folder a person can read; an existing one is never overwritten.

recipe.toml        what was run, every value spelled out
data.json          what the data was: name, counts, fingerprint
environment.json   versions, device, number of processes
metrics.jsonl      one line per epoch; events.out.tfevents.* tells TensorBoard the same
checkpoint.pt      what the run needs to go on; checkpoint.previous.pt is the one before it
scores/            of candidates that are ranked: SPLIT.run and SPLIT.qrels, as trec_eval reads them
model/             the model of the best epoch on dev so far, as a model folder
result.json        the figures, written last: a folder without it is a run that did not finish
.lock              while a process writes there: which one, and since when
"""

from __future__ import annotations

import json
import os
import platform
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor, nn

import nse
from nse import config
from nse.data.catalogue import describe_data
from nse.errors import ConfigError, ModelError, RunError, explain_errors
from nse.files import write
from nse.inference import folder as hub
from nse.metrics import trec
from nse.tasks import TABLES, TASKS, read_recipe
from nse.tasks.source import OwnFiles
from nse.tasks.task import Examples, describe_model
from nse.text.tensors import LabelledRows
from nse.train import checkpoints
from nse.train.distributed import Team
from nse.train.fields import NUMBER, is_dict_of
from nse.train.lock import LOCK, only_writer
from nse.train.loop import fit
from nse.train.progress import Progress
from nse.train.results import read_json, refuse_misfits
from nse.train.signals import Stopped, heard
from nse.train.state import Keeper, Outcome, take_threads
from nse.train.step import NotFiniteError

RECIPE, DATA, ENVIRONMENT = "recipe.toml", "data.json", "environment.json"
MODEL, RESULT, SCORES = "model", "result.json", "scores"

FIGURES = {"task": str, "epoch": int, "epochs": int, "parameters": int, "seconds": NUMBER}  # of any task
METRICS = "metrics.jsonl"
EVENTS = "events.out.tfevents."  # TensorBoard's own writer would put the machine's name behind it
SCALARS = ("loss", "train", "dev", "rate", "examples_per_second")  # what TensorBoard shows
OF_OWN_DATA = {"license": "unknown", "notes": "Whoever owns the data decides."}  # on a model's card


def train(
    name: str | None,
    recipe: Any,
    folder: Path,
    progress: Progress,
    resume: bool = False,
    data: Path | None = None,
) -> dict[str, Any]:
    """Train by a recipe into a new folder, or go on with the run that is there; return its result.json.

    Without a name it goes on by the name under which the run began. A finished run is left as it is. If it is
    asked to stop, it saves and raises `Stopped`.
    """
    team, task = Team(), TASKS[recipe.task]
    progress = progress if team.rank == 0 else Progress.silent()
    progress.name = name or folder.name
    keeper = RunFolder(folder, name, recipe, progress, team)
    with team.together(keeper.left), ExitStack() as held:
        team.lead(lambda: held.enter_context(only_writer(folder)))
        if finished := team.lead(lambda: opened(folder, recipe, resume)):
            progress.tell(f"{folder} holds the finished run")
            return finished
        examples = keeper.examples = team.in_turn(lambda: task.examples(recipe, data))
        for note in examples.about.get("notes", ()):
            progress.tell(note)
        with heard(patient=team.size > 1) as keeper.stop, keeper.explain_failures():
            outcome = fit(task, recipe, examples, progress, keeper, team)
            return team.lead(lambda: keeper.finish(outcome))


def opened(folder: Path, recipe: Any, resume: bool) -> dict[str, Any] | None:
    """Make sure that the run may use its folder; return the result of a run that is finished.

    The folder itself is made later, when the data is there: a mistake leaves nothing behind.
    """
    names: set[str] = set()
    with explain_errors(f"{folder} cannot be used"), suppress(FileNotFoundError):
        names = {file.name for file in folder.iterdir() if file.suffix != ".part"} - {LOCK}
    if not names:
        return None
    if not resume:
        what = f"{folder} is not empty: choose another folder"
        if RECIPE in names:
            raise RunError(what, ("resume",))
        raise RunError(f"{what}, or remove it")
    if RECIPE not in names:
        raise RunError(f"{folder} is not a run, for it has no {RECIPE}: choose another folder")
    with explain_errors(f"{folder / RECIPE} cannot be read", advice=": restore it, or choose another folder"):
        content = (folder / RECIPE).read_bytes()
    refuse_other_recipe(folder, content, recipe)
    result = folder / RESULT
    return read_result(result, recipe.data.table) if result.exists() else None


def read_result(file: Path, task: str) -> dict[str, Any]:
    """Read the figures of a finished run."""
    try:
        result: dict[str, Any] = read_json(file)
        refuse_misfits(file, result, FIGURES)
        if result["task"] != task:
            raise RunError(f"{file} is no result: task is {result['task']}, not {task}")
        measures = {figure.measure for figure in TABLES[task][0].shown} & result.keys()
        refuse_misfits(file, result, dict.fromkeys(measures, is_dict_of(NUMBER)))
    except RunError as error:
        raise RunError(f"{error}; remove it to compute it again", ("resume",)) from None
    return result


def refuse_other_recipe(folder: Path, content: bytes, recipe: Any) -> None:
    """Refuse to go on with a recipe that is not the one of before, which is given as TOML."""
    try:
        before = read_recipe(tomllib.loads(content.decode()), source=RECIPE)
    except (ConfigError, ValueError) as error:
        raise RunError(f"{folder} holds the run of a recipe that cannot be read: {error}") from None
    if changes := list(differences(before, recipe)):
        raise RunError(
            f"{folder} holds a run of another recipe ({', '.join(changes)}): "
            "give the same one, or choose another folder",
            ("continue", str(folder)),
        )


def differences(before: Any, now: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys in which two recipes differ, with both values; the number of threads may change."""
    for each in fields(before):
        key, old, new = f"{prefix}{each.name}", getattr(before, each.name), getattr(now, each.name)
        if is_dataclass(old) and type(old) is type(new):
            yield from differences(old, new, f"{key}.")
        elif old != new and key != "train.threads":
            yield f"{key} was {old} and is now {new}"


class History:
    """The figures of a run's epochs, written anew: metrics.jsonl for programs, events for TensorBoard."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]]):
        self.metrics, self.events = folder / METRICS, folder / f"{EVENTS}{int(time.time())}.{os.getpid()}"
        for old in folder.glob(f"{EVENTS}*"):
            old.unlink()
        write(self.metrics, "")
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
        """Write an event as TensorBoard reads it, with its length and checksums."""
        with self.events.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **content).SerializeToString())


class RunFolder(Keeper):
    """Keeps a run in its folder."""

    examples: Examples

    def __init__(self, folder: Path, name: str | None, recipe: Any, progress: Progress, team: Team):
        super().__init__()
        self.folder, self.recipe, self.progress, self.team = folder, recipe, progress, team
        self.given, self.name = name, name or str(folder / RECIPE)
        self.toml = config.to_toml(recipe, comments=True)
        self.last = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Read the state to go on from, if it is of this run; and write what runs it now."""
        packed = None
        if loaded := checkpoints.load(self.folder):
            packed = loaded.packed
            refuse_other_recipe(self.folder, packed["recipe"].encode(), self.recipe)
            if packed["data"] != self.examples.about["fingerprint"]:
                raise RunError(
                    f"{self.folder} holds a run on other data (see its {DATA}): "
                    "give the same data, or choose another folder"
                )
            self.saved, self.name = packed["step"], self.given or packed["name"]
            if loaded.wrong:
                aside = f"it is kept as {checkpoints.BAD}, and the one before it is taken"
                self.progress.tell(f"{loaded.wrong}; {aside}")
            before, now = len(packed["processes"]), self.team.size
            processes = "" if before == now else f"; there were {before} processes, now {now}"
            where = f"step {packed['step']} in epoch {packed['epoch']}, from {loaded.file.name}"
            self.progress.tell(f"goes on after {where}{processes}")
        before = torch.get_num_threads()
        take_threads(self.recipe, packed, self.team)
        threads = torch.get_num_threads()
        if self.team.device.type == "cpu" and max(threads, before) > 1:  # where there is a choice
            many = "1 thread" if threads == 1 else f"{threads} threads"
            self.progress.tell(f"computes on {many} of the CPU (train.threads changes it)")
        self.folder.mkdir(parents=True, exist_ok=True)
        if loaded and loaded.wrong:  # and would replace the one before it
            (self.folder / checkpoints.CURRENT).replace(self.folder / checkpoints.BAD)
        write(self.folder / RECIPE, self.toml)
        write(self.folder / DATA, as_json(self.examples.about))
        write(self.folder / ENVIRONMENT, as_json(environment(self.team.device, self.team.size)))
        self.history = History(self.folder, packed["metrics"] if packed else [])
        return packed

    def due(self) -> bool:
        """Say whether the last save is long enough ago."""
        return time.monotonic() - self.last >= 60 * float(self.recipe.train.minutes)

    def save(self, packed: dict[str, Any]) -> None:
        """Write the checkpoint."""
        about = {"name": self.name, "recipe": self.toml, "data": self.examples.about["fingerprint"]}
        checkpoints.save(self.folder, packed | about)
        self.last = time.monotonic()

    def save_model(self, model: nn.Module, figures: dict[str, Any]) -> None:
        """Write the model folder, with these figures in its card."""
        examples, said = self.examples, describe_model(self.recipe, self.examples)
        about = {"recipe": self.name, "seed": self.recipe.seed}
        about |= {"training examples": examples.about["counts"]["train"]}
        about |= OF_OWN_DATA if isinstance(self.recipe.data, OwnFiles) else describe_data(said.data)
        hub.save(self.folder / MODEL, model, said, examples.vocabulary, about | figures, examples.target)

    def epoch(self, row: dict[str, Any], best: nn.Module | None) -> None:
        """Write the figures of an epoch, and the model folder if it is the best one."""
        if best is not None:
            figures = {"accuracy": {"train": row["train"]}}
            figures.setdefault(TASKS[self.recipe.task].shown[0].measure, {})["dev"] = row["dev"]
            self.save_model(best, {"epoch": row["epoch"]} | figures)
        self.history.add(row)

    def scored(self, name: str, scores: Tensor, split: LabelledRows) -> None:
        """Write the scores of candidates in the format of trec_eval."""
        if split.groups is not None:
            (self.folder / SCORES).mkdir(exist_ok=True)
            columns = scores[:, 0], split.groups, split.labels
            trec.write(self.folder / SCORES / name, *(column.numpy() for column in columns))

    def finish(self, outcome: Outcome) -> dict[str, Any]:
        """Write the figures of the run, last of all the result, which is returned."""
        found, counts = environment(self.team.device, self.team.size), self.examples.about["counts"]
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
            **{key: found[key] for key in ("device", "processes", "nse", "torch")},
            "data": self.examples.about,
        }
        self.save_model(outcome.model, figures)
        write(self.folder / RESULT, as_json(result))
        return result

    def left(self) -> str:
        """Say what is left after an error."""
        good = f"the checkpoint at step {self.saved} is good"
        return "there is no checkpoint yet" if self.saved is None else good

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Say what is left after an error in the block, or after a stop, and what to do."""
        try:
            yield
        except Stopped as stopped:
            if self.team.rank:
                raise SystemExit(stopped.code) from None  # the first process tells it
            raise Stopped(stopped.code, f"stopped; {self.left()}", ("resume",)) from None
        except NotFiniteError as error:
            raise RunError(f"{error}; {self.left()}") from None
        except (OSError, ModelError) as error:
            what = str(error)
            if isinstance(error, OSError):
                what = f"{self.folder} cannot be written: {error.strerror or error}"
            raise RunError(f"{what}; {self.left()}; make room", ("resume",)) from error


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Return versions, device and number of processes; nothing that names a machine or a person."""
    return {
        "nse": nse.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device": device_name(device),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_name(device: torch.device) -> str:
    """Return what the device is called, such as NVIDIA H200; a CPU is "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def as_json(value: Any) -> str:
    """Write a value as a person reads it."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
