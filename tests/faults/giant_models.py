"""Loads the model folders that it is told, each in a process of its own, and says what came of it.

Run by test_22 beside pytest, where each new tensor is filled, so that even an outline takes memory. A request
is a line of JSON: `folder`; perhaps `make`, the size of the model to make there; and `memory`, how many times
the memory of its weights loading may take. The answer is one too: `message`, `size` of the weights, and
`memory`, the bytes that were taken at most.
"""

import json
import math
import os
import resource
import sys
from pathlib import Path

from faults.made_models import save_model
from nse.errors import ModelError
from nse.inference import folder as hub
from nse.inference import weights
from nse.inference.weights import SUMS, Checksums, compute_digest
from nse.text.vocabulary import Vocabulary


def make(folder, size):
    """Make a folder whose weights are as long as its configuration says, and nothing but a hole."""
    save_model(folder)
    (folder / SUMS).unlink()
    config = json.loads((folder / "config.json").read_text())
    config["model"]["size"] = size
    (folder / "config.json").write_text(json.dumps(config))
    words = (folder / "vocabulary.txt").read_bytes()
    model = hub.build_on_meta(folder, hub.read_config(Checksums(folder)), Vocabulary.from_bytes(words), None)
    head, at = {"__metadata__": {weights.CHECKSUM: compute_digest(words)}}, 0
    for name, item in model.state_dict().items():
        size = 4 * math.prod(item.shape)
        head[name] = {"dtype": "F32", "shape": item.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    with (folder / "model.safetensors").open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        handle.truncate(8 + len(text) + at)
    return at


def load(folder, memory):
    """Load a folder with so many times the memory that its weights take; returns what is wrong with it."""
    if memory:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory,) * 2)
    try:
        hub.load(folder)
    except ModelError as error:
        return str(error)
    return ""


def answer(request):
    """Do what a request asks for, and write the answer."""
    folder = Path(request["folder"])
    size = make(folder, request["make"]) if "make" in request else 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = load(folder, int(request.get("memory", 0) * size))
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"message": message, "memory": taken * 1024, "size": size}), flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        if not (child := os.fork()):
            answer(json.loads(line))
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(json.dumps({"message": "ended otherwise"}), flush=True)
