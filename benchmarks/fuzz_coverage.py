"""Fuzz the readers of JSON, TOML and model folders, guided by branch coverage, with atheris and libFuzzer.

    python -m pip install atheris                     # only needed here; Linux
    python benchmarks/fuzz_coverage.py                # ten minutes per reader; writes results/fuzz.json

Each reader has its own process, in which `nse` and `tomllib` are instrumented. Every input must be read, or
refused with the documented error; anything else is a crash, as are more than ten seconds or 4 GB. A crash
ends the program, which names the input and writes nothing for that reader.
"""

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

READERS = ("JSON", "TOML", "model folders")

INSTRUMENTED = ["nse", "tomllib"]

SEPARATOR = b"\n==8<==\n"
"""Separates the files of an input."""

LIMITS = ["-timeout=10", "-rss_limit_mb=4096", "-max_len=20000", "-print_final_stats=1"]

Reader = tuple[list[bytes], Callable[[bytes], object]]
"""Valid inputs, and function that reads an input."""


def make_json_reader(folder: Path) -> Reader:
    """Return a reader of JSON: a model's configuration, lines of a file, or the body of a request."""
    from faults.fuzzing import SUMS, try_folder
    from faults.made_models import save_model
    from nse.cli.rows import Columns, read_rows
    from nse.data.records import Format, LineSource
    from nse.errors import DataError
    from serve.made_bodies import PATHS, make_body_sender

    save_model(folder / "good")
    files = {file.name: file.read_bytes() for file in (folder / "good").iterdir()}
    ask, lines = make_body_sender(folder / "good"), folder / "lines.jsonl"
    columns = Columns(("question", "answer"), listed="candidates")

    def read_config(content: bytes) -> None:
        try_folder(files | {"config.json": content, SUMS: None}, folder / "broken")

    def read_lines(content: bytes) -> None:
        lines.write_bytes(content)
        try:
            with LineSource(lines) as source:
                list(read_rows(source, Format.jsonl, columns))
        except DataError as error:
            if not str(error):
                raise

    def attempt(content: bytes) -> None:
        kind, content = content[:1], content[1:]
        if kind == b"c":
            read_config(content)
        elif kind == b"l":
            read_lines(content)
        elif kind:
            ask((PATHS[kind[0] % len(PATHS)], content, "application/json"))

    candidates = {"id": 1, "question": "who?", "candidates": ["you", "me"]}
    texts = [{"id": "a", "question": "who?", "answer": "me"}, {"texts": ["who?", "me"]}, candidates]
    questions = [{"texts": [["all dogs bark", "do not"]], "strict": True}, {"texts": ["all dogs"], "beam": 2}]
    seeds = [b"c" + files["config.json"], b"l" + b"\n".join(json.dumps(row).encode() for row in texts)]
    seeds += [b"%c" % path + json.dumps(body).encode() for path in range(5) for body in questions]
    return seeds, attempt


def make_toml_reader(folder: Path) -> Reader:
    """Return a reader of TOML: a recipe and an assignment of `--set`."""
    from faults.fuzzing import RECIPES, try_recipe
    from nse.tasks.recipe import find_recipe_file

    def attempt(content: bytes) -> None:
        recipe, _, assignment = content.partition(SEPARATOR)
        try_recipe(recipe, os.fsdecode(assignment), folder / "recipe.toml")

    recipes = [find_recipe_file(name).read_bytes() for name in RECIPES]
    assignments = [b"seed=2", b"model.size=300", b'train.schedule="linear"', b"model={size = 8}", b"a.b=[1]"]
    return [SEPARATOR.join(pair) for pair in zip(recipes, assignments, strict=True)], attempt


def make_folder_reader(folder: Path) -> Reader:
    """Return a reader of model folders: configuration, vocabulary and weights."""
    from faults.fuzzing import FILES, SUMS, try_folder
    from faults.made_models import save_model

    def attempt(content: bytes) -> None:
        parts = dict(zip(FILES, content.split(SEPARATOR), strict=False))
        try_folder({name: parts.get(name) for name in (*FILES, SUMS)}, folder / "broken")

    changes: list[dict[str, Any]] = [{}, {"weights": "float16", "vectors": "int8"}, {"kind": "sentence"}]
    models = [folder / f"{number}" for number in range(len(changes))]
    for model, change in zip(models, changes, strict=True):
        save_model(model, **change)
    return [SEPARATOR.join((model / name).read_bytes() for name in FILES) for model in models], attempt


MAKERS = dict(zip(READERS, (make_json_reader, make_toml_reader, make_folder_reader), strict=True))


def fuzz(reader: str, folder: Path, seconds: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        import nse.inference.folder  # noqa: F401  # and what the readers import

        seeds, attempt = MAKERS[reader](folder)
    logging.disable(logging.WARNING)  # about folders without checksums
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / f"{number}").write_bytes(seed)
    tokens = sorted({token for seed in seeds for token in re.findall(rb'"?[a-z_]{3,30}"?', seed)})
    lines = [b'"' + token.replace(b'"', rb"\"") + b'"' for token in [*tokens, SEPARATOR.strip()]]
    (folder / "tokens").write_bytes(b"\n".join(lines) + b"\n")
    options = [f"-max_total_time={seconds}", f"-dict={folder / 'tokens'}", *LIMITS]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(corpus)], attempt)
    atheris.Fuzz()


def run_fuzzer(reader: str, seconds: int) -> dict[str, Any]:
    """Fuzz one reader in its own process; return the number of inputs and of branches reached."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        options = ["--reader", reader, "--folder", folder, "--seconds", str(seconds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, __file__, *options], env=environment, capture_output=True, check=False
        )
        output = done.stderr.decode(errors="replace")
        crashes = [
            file for file in Path(folder).iterdir() if re.match(r"(crash|timeout|oom|leak)-", file.name)
        ]
        if crashes or done.returncode:
            kept = [Path(tempfile.gettempdir()) / file.name for file in crashes]
            for file, copy in zip(crashes, kept, strict=True):
                copy.write_bytes(file.read_bytes())
            sys.exit(f"{output[-6000:]}\n{reader}: a crash; the input: {', '.join(map(str, kept)) or 'none'}")
    return parse_counts(output) | {"seconds": seconds}


def parse_counts(output: str) -> dict[str, int]:
    """Return libFuzzer's number of inputs, branches reached, and features (branches with counts)."""
    inputs = re.findall(r"^stat::number_of_executed_units:\s+(\d+)", output, re.MULTILINE)
    reached = re.findall(r"\bcov: (\d+) ft: (\d+)", output)
    return {"inputs": int(inputs[-1]), "branches": int(reached[-1][0]), "features": int(reached[-1][1])}


def main() -> None:
    """Fuzz all readers, or one, and write the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=600, help="for each reader")
    parser.add_argument("--only", choices=READERS, help="only this reader")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        from atheris import __file__ as _  # noqa: F401
    except ImportError:
        sys.exit("fuzz_coverage.py needs atheris: python -m pip install atheris")
    if args.reader:
        fuzz(args.reader, args.folder, args.seconds)
    for reader in [args.only] if args.only else READERS:
        figures = run_fuzzer(reader, args.seconds)
        print(reader, json.dumps(figures), flush=True)
        # Read only now: fuzz.py, which writes the same file, may have run meanwhile.
        report = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {}
        report.setdefault("readers", {})[reader] = figures
        args.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
