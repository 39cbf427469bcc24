"""Write the tables of the documents from measured figures (`make tables`).

A table stands between `<!-- NAME -->` and `<!-- end -->`.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nse import config
from nse.tasks import TABLES as TASKS_OF_TABLES
from nse.tasks import TASKS, make_recipe_class
from nse.train import results as tables
from nse.train.demo import MODELS
from nse.viz.trace import MemoryTrace

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.house import table as house_table
from benchmarks.pictures import TRACES, compare_with_paper
from benchmarks.speed.cpu import FULL, MEMORY, PEERS
from benchmarks.speed.report import CUDNN, OURS, find_row, select_encoders
from benchmarks.speed.sweeps import CPU, GPU, draw_sweeps

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ELSEWHERE = ROOT / "docs" / "results" / "elsewhere"
TRIED = {task: ROOT / "docs" / "results" / f"{task}-tried.json" for task in TASKS_OF_TABLES}


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Write a Markdown table; columns whose names begin with > are right-aligned."""
    lines = [[name.lstrip(">") for name in columns]]
    lines.append(["---:" if name.startswith(">") else "---" for name in columns])
    text = "\n".join(f"| {' | '.join(line)} |" for line in [*lines, *rows])
    return f"{text}\n\n{note}" if note else text


def read_result(name: str) -> Any:
    """Read a JSON file of `docs/results`."""
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text("utf-8"))


def write_demo() -> str:
    """Write the table of `nse demo --json > docs/results/demo.json`."""
    rows = []
    for row in read_result("demo"):
        accuracies = [f"{100 * row[key]:.1f}%" for key in ("accuracy", "accuracy_unseen")]
        rows.append([MODELS[row["model"]], *accuracies, f"{row['seconds']:.0f} s"])
    return make_table(["model", ">test", ">unseen", ">training, two cores"], rows)


SHAPE = ("B", "T", "dtype", "mode")
"""Keys of a measured encoder that its table has a row for."""


def write_pivot(rows: list[dict[str, Any]], key: str, form: str, backends: Sequence[str]) -> str:
    """Write one figure of encoders, a row per shape and a column per backend."""
    shapes: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        if row[key] is not None:
            shape = tuple(str(row[name]) for name in SHAPE)
            shapes.setdefault(shape, {})[row["backend"]] = form.format(row[key])
    lines = [[*shape, *(cells.get(name, "") for name in backends)] for shape, cells in shapes.items()]
    return make_table([">B", ">T", "type", "mode", *(f">{name}" for name in backends)], lines)


def find_our_backend(rows: list[dict[str, Any]]) -> str:
    """Return the backend that runs by default on the CPU, of those that were measured."""
    return "cpu" if any(row["backend"] == "cpu" for row in rows) else "torch"


def compute_cpu_ratio(rows: list[dict[str, Any]], shape: dict[str, Any]) -> float:
    """Return the time of an NSE over that of an LSTM."""
    ours, lstm = (find_row(rows, shape | {"backend": side}) for side in (find_our_backend(rows), "lstm"))
    return float(ours.get("over_lstm") or ours["ms"] / lstm["ms"])


def write_cpu() -> str:
    """Write the times of `make bench`, and their bounds."""
    rows, lines = read_report("cpu")["rows"], []
    for B, T, mode, must, aim in FULL.shapes:
        shape = {"B": B, "T": T, "mode": mode}
        if find_row(rows, shape) is None:
            continue
        times = (find_row(rows, shape | {"backend": side}) for side in ("reference", "torch", "cpu", "lstm"))
        cells = [f"{row['ms']:.1f}" if row else "" for row in times]
        bounds = [f"{bound:.2f}" for bound in (compute_cpu_ratio(rows, shape), must, aim)]
        lines.append([str(B), str(T), mode, *cells, *bounds])
    columns = ("B", "T", "mode", "reference", "torch", "cpu", "lstm", "NSE / lstm", "must", "aim")
    _, _, mode, must, aim = MEMORY
    shape = {"B": MEMORY.B, "T": MEMORY.T, "mode": mode}
    ours, reference = (
        find_row(rows, shape | {"backend": side})["peak_mb"] for side in (find_our_backend(rows), "reference")
    )
    memory = f"{MEMORY.B} x {MEMORY.T} words: {ours / reference:.3f} of the reference's {reference:,.0f} MiB"
    note = f"Peak memory of training on {memory} (must {must}, aim {aim})."
    return make_table([f">{name}" if name != "mode" else name for name in columns], lines, note)


def write_cpu_peers() -> str:
    """Write the times of the peers that `make bench` found."""
    rows = read_report("cpu")["rows"]
    names = [name for name in PEERS if find_row(rows, {"backend": name})]
    if not names:
        return "Not measured yet."
    lines = []
    for B, T, mode, *_ in FULL.shapes:
        shape = {"B": B, "T": T, "mode": mode}
        found = [find_row(rows, shape | {"backend": name}) for name in (find_our_backend(rows), *names)]
        lines.append([str(B), str(T), mode, *(f"{row['ms']:.1f}" if row else "" for row in found)])
    compiled = [row["compile_s"] for row in rows if row["backend"] == "torch.compile"]
    note = (
        f"`torch.compile` compiles a shape in {min(compiled):.0f} to {max(compiled):.0f} s."
        if compiled
        else ""
    )
    return make_table([">B", ">T", "mode", ">NSE", *(f">{name}" for name in names)], lines, note)


def write_cpu_growth() -> str:
    """Write the time over an LSTM's by length and by batch."""
    rows = read_report("cpu").get("growth")
    if not rows:
        return "Not measured yet."
    (B, lengths), (T, batches), modes = FULL.lengths[-1], FULL.batches, ("forward", "train")
    ones = FULL.lengths[0][0]

    def write_ratios(shapes: Iterable[dict[str, int]]) -> list[str]:
        return [
            f"{compute_cpu_ratio(rows, {**shape, 'mode': mode}):.2f}" for shape in shapes for mode in modes
        ]

    by_length = make_table(
        [">T", *(f">{mode}, B = {each}" for each in (ones, B) for mode in modes)],
        [[str(each), *write_ratios({"B": n, "T": each} for n in (ones, B))] for each in lengths],
    )
    by_batch = make_table(
        [">B", *(f">{mode}, T = {T}" for mode in modes)],
        [[str(each), *write_ratios([{"B": each, "T": T}])] for each in batches],
    )
    return f"{by_length}\n\n{by_batch}\n\n![Milliseconds by length and by batch](images/{CPU_PICTURE})"


def write_instruction_sets() -> str:
    """Write the times of the CPU kernel by instruction set."""
    rows = read_report("cpu").get("isa")
    if not rows:
        return "Not measured yet."
    names, lines = list(dict.fromkeys(row["isa"] for row in rows)), []
    for B, T, mode, *_ in FULL.shapes:
        found = [find_row(rows, {"isa": name, "B": B, "T": T, "mode": mode}) for name in names]
        times, ratios = ([row[key] for row in found if row] for key in ("ms", "over_first"))
        lines.append(
            [str(B), str(T), mode, *(f"{ms:.1f}" for ms in times), *(f"{ratio:.2f}" for ratio in ratios[1:])]
        )
    others = (f">{name} / {names[0]}" for name in names[1:])
    return make_table([">B", ">T", "mode", *(f">{name}, ms" for name in names), *others], lines)


GAINS = (
    ("answers", "file", "`nse predict --file`, SNLI test, whole process", "", None, None),
    ("answers", "file", "the same over the reference loop", "over_loop", None, None),
    ("answers", "model", "`model.predict`", "", None, None),
    ("answers", "model", "the same over the reference loop", "over_loop", 8, 12),
    ("answers", "http", "HTTP, 32 clients", "", None, None),
    ("answers", "http", "the same over `nse predict --file`", "over_file", 0.75, 0.85),
    ("first", "nse predict", "first answer of `nse predict`", "", None, None),
    ("first", "nse.load and predict", "`import nse`, `nse.load`, `predict`", "", None, None),
    ("steps", "snli/nse-masked", "training `snli/nse-masked`", "", 1.3, 2),
    ("steps", "aclimdb/nse-lstm", "training `aclimdb/nse-lstm`", "", 1.3, 2),
    ("demo", "nse demo", "`nse demo`", "", None, None),
)
"""Part and name in compare_versions.json, words, key of a share, and bounds of it, or of times faster."""


def write_gains() -> str:
    """Write what `benchmarks/compare_versions.py` measured."""
    path, lines = RESULTS / "compare_versions.json", []
    report = read_report("compare_versions") if path.is_file() else {}
    for part, name, words, share, must, aim in GAINS:
        if part not in report:
            continue
        row, unit = report[part][name], report[part]["unit"]
        if share:
            cells = [*(f"{row[f'{version}_{share}']:.2f}" for version in ("before", "now")), ""]
        else:
            form = "{:.2f} {}" if unit == "s" else "{:,.0f} {}"
            cells = [form.format(row[version], unit) for version in ("before", "now")]
            cells.append(f"{row['times_faster']:.2f}")
        bounds = ("" if bound is None else f"{bound:g}" for bound in (must, aim))
        lines.append([words, *cells, *bounds])
    if not lines:
        return "Not measured yet."
    note = f"Before is {report['commits']['before']}. Training is the first {describe_steps(report)}."
    return make_table(["", ">before", ">now", ">times faster", ">must", ">aim"], lines, note)


def describe_steps(report: dict[str, Any]) -> str:
    """Describe how many steps of training were timed."""
    steps = report.get("steps", {}).get("steps", {})
    return " and ".join(f"{count} steps of `{recipe}`" for recipe, count in steps.items()) or "steps"


def write_h200(key: str) -> str:
    """Write one figure of `make bench-gpu` for the shapes that were measured with every backend."""
    rows = select_encoders(read_report("h200"))
    complete = {(row["B"], row["T"]) for row in rows if not row["backend"].endswith("graph")}
    rows = [row for row in rows if (row["B"], row["T"]) in complete]
    backends = ["reference", "torch", "torch graph", "triton", "triton graph", "cudnn", "cudnn graph", "jax"]
    if key == "kept_mb":
        return write_pivot(
            rows, key, "{:.0f}", [name for name in backends if "graph" not in name and name != "jax"]
        )
    return write_pivot(rows, key, "{:.2f}", backends)


def write_h200_steps() -> str:
    """Write the times of whole training steps, from `make bench-gpu`."""
    rows = [
        [row["batches"], row["backend"], str(row["T"]), f"{row['ms']:.1f}", f"{row['pairs_per_second']:,}"]
        for row in read_report("h200")["rows"]
        if row["name"] == "SNLI step"
    ]
    return make_table(["batches", "backend", ">words, padded", ">ms", ">pairs/s"], rows)


def write_tasks() -> str:
    """Write the table of `benchmarks/tasks.py`."""
    rows = [
        [
            row["recipe"],
            f"{row['in_a_second']:,.0f} {row['unit']}/s",
            f"{row['times_the_baseline']:.2f}",
        ]
        for row in read_report("h200-tasks")["rows"]
    ]
    return make_table(["recipe", ">training speed", ">time over the baseline"], rows)


SECTIONS = ("recipe", "data", "model", "train")
"""Tables of recipe keys; `recipe` has those outside every section."""


def write_keys(section: str) -> str:
    """Write the keys of a recipe's section, each once, with the recipes that have it."""
    recipes = [(task, source) for task in TASKS.values() for source in task.sources]
    places: dict[config.Entry, list[str]] = {}
    for task, source in sorted(recipes, key=lambda recipe: "own" in recipe[1].list_names()):
        names = [f"own/{task.kind.name}"] if "own" in source.list_names() else source.list_names()
        for entry in config.describe(make_recipe_class(source.table)):
            if (
                entry.type != "section"
                and (entry.key.rpartition(".")[0].split(".")[0] or "recipe") == section
            ):
                places.setdefault(entry, []).extend(names)
    order = list(dict.fromkeys(entry.key for entry in places))
    rows = ["| key | recipes | type | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for entry in sorted(places, key=lambda entry: order.index(entry.key)):
        cells = (f"`{entry.key}`", shorten(places[entry]), entry.type, f"`{entry.default}`", entry.doc)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def shorten(names: list[str]) -> str:
    """Write the kind for all data sets of a kind, `own/*` for all templates, nothing for all recipes."""
    kinds = {
        task.kind.name: {
            name if name != "own" else f"own/{task.kind.name}"
            for source in task.sources
            for name in source.list_names()
        }
        for task in TASKS.values()
    }
    left, words = set(names), []
    if left == set().union(*kinds.values()):
        return ""
    templates = {f"own/{kind}" for kind in kinds} & set().union(*kinds.values())
    for word, group in {**kinds, "own/*": templates}.items():
        if group <= left:
            left -= group
            words.append(word)
    return ", ".join([*words, *sorted(left)])


def write_results(task: str) -> str:
    """Write the table of `nse table TASK --markdown`; columns that are equal in all rows go below it."""
    rows = tables.compute_table(task, ROOT / "docs" / "results" / task)
    lines, _, note = tables.format_markdown(task, rows).strip().replace(" ± ", "±").partition("\n\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.split("\n")]
    columns = [column for column in zip(*cells, strict=True) if any(column[2:]) and column[0] not in UNUSED]
    equal = [column for column in columns if len(set(column[2:])) == 1 and column[0] in COMMON]
    kept = zip(*(column for column in columns if column not in equal), strict=True)
    common = ", ".join(COMMON[name].format(value) for name, _, value, *_ in equal)
    notes = [f"All models: {common}."] if common else []
    text = "\n".join(f"| {' | '.join(row)} |" for row in kept)
    return "\n\n".join([text, *([" ".join([*notes, *note.split("\n")])] if notes or note else [])]).strip()


UNUSED = ("s / epoch", "on")
"""Columns left out of the documents: seconds are no measure of speed where runs shared a device."""

COMMON = {"seeds": "{} seeds", "trained on": "trained on {} examples", "vectors": "vectors {}"}
"""Columns of results that are written below a table where all rows agree."""


def write_tried(task: str) -> str:
    """Write the table of `benchmarks/tried.py TASK`: changed recipes beside the recipes, same seeds."""
    figure = TASKS_OF_TABLES[task][0].columns[0]
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in json.loads(TRIED[task].read_text("utf-8")):
        name = row["recipe"] if row["recipe"].startswith(f"{task}/") else f"{task}/{row['recipe']}"
        dev = read_result(f"{name}-{row['seed']}")[figure.measure]["dev"]
        groups.setdefault((row["recipe"], *row["changes"]), []).append((row["dev"], dev))
    rows = []
    for (recipe, *changes), values in groups.items():
        means = [f"{figure.scale * fmean(side):.{figure.digits}f}" for side in zip(*values, strict=True)]
        rows.append([recipe, ", ".join(f"`{change}`" for change in changes), str(len(values)), *means])
    return make_table(["recipe", "change", ">seeds", ">dev", ">dev without the change"], rows)


def write_elsewhere() -> str:
    """Write what `nse evaluate RUN --on DATA --split test --json` printed, a file per run."""
    rows = []
    for file in sorted(ELSEWHERE.rglob("*.json")):
        row = json.loads(file.read_text("utf-8"))
        name, _, seed = file.stem.rpartition("-")
        test = f"{row['data']}, {row['n']:,} sentences ({row['published']:,} in the paper)"
        rows.append([f"{file.parent.name}/{name}", seed, test, f"{100 * row['bleu']:.2f}"])
    return make_table(["model", ">seed", "test set", ">BLEU"], rows)


def write_paper_and_here() -> str:
    """Compare the sentence of appendix A (`benchmarks/pictures.py`) with the paper."""
    pairs = compare_with_paper(MemoryTrace.load(TRACES / "child.json"))
    rows = [
        [*(f"`{name}`" for name in (word, paper, here)), f"{weight:.2f}", "yes" if paper == here else ""]
        for word, paper, here, weight in pairs
    ]
    same = sum(paper == here for _, paper, here, _ in pairs)
    chance = len(pairs) / (len(pairs) - 1)  # each word one of the others
    note = f"{same} of {len(pairs)} agree; {chance:.1f} are expected by chance."
    return make_table(["word", "composed with: paper", "here", ">z", "same"], rows, note)


def write_access() -> str:
    """Write what `benchmarks/access.py` counted."""
    counts = read_result("access")
    groups = {f"**{name} words**": row for name, row in counts["groups"].items()}
    rows = []
    for name, row in {**groups, **counts["parts"]}.items():
        keys = ("share_of_slots", "share_of_most_accessed", "share_of_least_accessed")
        slots, most, least = (f"{100 * row[key]:.1f}%" for key in keys)
        rows.append([name, slots, f"{row['accesses_per_slot']:.2f}", most, least])
    columns = ["", ">slots", ">accesses per slot", ">of the most accessed", ">of the least accessed"]
    note = f"{counts['sentences']:,} sentences, {counts['slots']:,} slots."
    return make_table(columns, rows, note)


SUMMARY = [
    (
        "Natural language inference",
        "snli",
        "test",
        "{:.1f}%",
        ("snli/lstm", "snli/mma-attention", "snli/best"),
    ),
    (
        "Answer selection, MAP",
        "wikiqa",
        "MAP",
        "{:.3f}",
        ("wikiqa/lstm-attention", "wikiqa/mma-attention", "wikiqa/best"),
    ),
    ("Sentences, two labels", "sst", "test", "{:.1f}%", ("sst/binary-lstm", "sst/binary", "sst/best")),
    ("Sentences, five labels", "sst", "test", "{:.1f}%", ("sst/fine-lstm", "sst/fine", "sst/best-fine")),
    (
        "Documents, eight labels",
        "documents",
        "test",
        "{:.1f}%",
        ("aclimdb/lstm-lstm", "aclimdb/nse-lstm", ""),
    ),
    (
        "Translation, BLEU",
        "translation",
        "test BLEU",
        "{:.1f}",
        ("multi30k/lstm-lstm", "multi30k/nse-nse", "multi30k/best"),
    ),
]
"""Lines of the README's table of results: task, figure, and recipes: with an LSTM, an NSE, the best."""


OTHER_DATA = {"documents": "film reviews (aclImdb)", "translation": "Multi30k"}
"""Data of tasks whose published data was not available."""


def write_summary() -> str:
    """Write a line per task for README."""
    lines = [
        "| task | LSTM | NSE | best NSE | NSE in the paper | training data |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for title, task, figure, form, recipes in SUMMARY:
        rows = {row["recipe"]: row for row in tables.compute_table(task, ROOT / "docs" / "results" / task)}
        cells = [f"{form.format(rows[name][figure]['mean'])} `{name}`" if name else "" for name in recipes]
        nse = rows[recipes[1]]
        paper = form.format(nse["paper"][figure]) if nse["paper"] else ""
        count, of = (f"{nse[key]:,}" for key in ("examples", "published"))
        data = OTHER_DATA.get(task, "") or f"{count} rows" + (f" of {of}" if of != count else "")
        lines.append(f"| {title} | {' | '.join(cells)} | {paper} | {data} |")
    return "\n".join(lines)


def write_answers() -> str:
    """Write what `benchmarks/answers.py` measured with the shipped `snli`."""
    results = read_report("answers")
    file, loop, start = results["file"], results["loop"], results["start"]
    reference = loop["pairs_per_second"]["reference"]
    rows = [
        [
            f"`nse predict --file`, {file['pairs']:,} pairs, whole process",
            f"{file['pairs_per_second']:,.0f} pairs/s",
        ],
        ["`model.predict`", f"{loop['pairs_per_second']['nse']:,.0f} pairs/s"],
        [
            "the reference loop, batches of 32",
            f"{reference:,.0f} pairs/s ({loop['times_faster']:.1f} times slower)",
        ],
        ["`nse predict`, first answer of a new process", f"{start['seconds']['first answer']:.2f} s"],
        ["`import nse` beyond `import torch`", f"{start['import nse over torch']:.2f} s"],
    ]
    if peer := results.get("peer"):
        speeds = peer["sentences_per_second"]
        best = max(speed for name, speed in speeds.items() if name != "nse")
        compared_speed = f"{speeds['nse']:,.0f} sentences/s; {peer['peer']}: {best:,.0f}"
        rows.append(["`model.encode`", compared_speed])
    where = results["environment"]
    note = f"Shipped model `snli`, SNLI test, torch {where['torch']}, {where['threads']} cores, float32."
    return make_table(["", ">speed"], rows, note)


def write_precision() -> str:
    """Write what `benchmarks/precision.py` measured."""
    results = read_report("precision")
    names = {"accuracy": "accuracy, %", "bleu": "BLEU"}
    rows = []
    for row in results["rows"]:
        both = row["float32"], row["bfloat16"]
        metrics = [f"{side[row['metric']]:.2f}" for side in both]
        speeds = [f"{side['texts_per_second']:,.0f}" for side in both]
        test = f"{names[row['metric']]}, {row['data']}, {row['n']:,}"
        rows.append([f"`{row['model']}`", test, " / ".join(metrics), " / ".join(speeds)])
    where = results["environment"]
    columns = ["model", "metric and data", ">float32 / bfloat16", ">texts per second"]
    note = f"Tokenized texts, torch {where['torch']}, {where['cores']} cores with AVX512_BF16."
    return make_table(columns, rows, note)


def write_http() -> str:
    """Write what `benchmarks/http_speed.py` measured."""
    results = read_report("http")
    speed = results["http"]
    rows = [
        ["requests of one pair", f"{speed['pairs_per_second']:,.0f} pairs/s"],
        ["latency, p50 and p99", f"{speed['p50_ms']:.0f} and {speed['p99_ms']:.0f} ms"],
        ["`nse predict --file` in the same run", f"{results['file']['pairs_per_second']:,.0f} pairs/s"],
    ]
    return make_table([f"{results['clients']} clients, shipped model `snli`", ">"], rows)


def write_answers_on_a_gpu() -> str:
    """Write what `benchmarks/answers.py --device cuda` measured."""
    results = read_report("answers-h200")
    rows = [
        [
            f"{row['batch']:,}",
            *(f"{row[key]:,.0f} pairs/s" for key in ("texts per second", "model per second")),
        ]
        for row in results["gpu"]
    ]
    where = results["environment"]
    note = f"SNLI test, {where['device']}, torch {where['torch']}, float32."
    return make_table([">batch", ">from texts to labels", ">model alone"], rows, note)


def write_soak() -> str:
    """Write what `benchmarks/soak.py` measured."""
    results = read_report("soak")
    times = results["sent"] / results["seconds"] / results["capacity_per_second"]
    memory = [f"{results[f'memory_mb_{when}']:.0f}" for when in ("after_warming_up", "at_the_end")]
    rows = [
        ["capacity, 128 clients in a closed loop", f"{results['capacity_per_second']:,.0f} requests/s"],
        [
            f"sent in {results['seconds'] / 60:.0f} minutes",
            f"{results['sent']:,} ({times:.2f} times capacity)",
        ],
        [
            "served; refused with 429; other",
            f"{results['served']:,}; {results['refused']:,}; {results['other']:,}",
        ],
        [
            "latency of served requests, p50 and p99",
            f"{results['p50_ms']:.0f} and {results['p99_ms']:.0f} ms",
        ],
        ["memory in the second and the last minute", f"{memory[0]} and {memory[1]} MB"],
    ]
    return make_table(["", ">"], rows)


def write_fuzz() -> str:
    """Write what `benchmarks/fuzz.py` and `fuzz_coverage.py` tried."""
    results = read_report("fuzz")
    rows = [
        [
            kind,
            f"{row['inputs']:,}",
            ", ".join(f"{name}: {count:,}" for name, count in row["outcomes"].items()),
        ]
        for kind, row in results.items()
        if kind not in ("environment", "readers")
    ]
    text = make_table(["damaged input", ">inputs", "outcomes"], rows)
    if readers := results.get("readers"):
        rows = [
            [name, f"{row['seconds'] / 60:.0f}", f"{row['inputs']:,}", f"{row['branches']:,}"]
            for name, row in readers.items()
        ]
        columns = ["reader, guided by coverage", ">minutes", ">inputs", ">branches reached"]
        text = f"{text}\n\n{make_table(columns, rows)}"
    return text


def write_attacks() -> str:
    """Write what `benchmarks/attacks.py` tried, by rows of the table of faults."""
    results = read_report("attacks")
    sums = {key: sum(row[key] for row in results["rows"]) for key in ("tried", "held", "failed", "skipped")}
    counts = ", ".join(f"{row['fault'] or 'random input'}: {row['tried']}" for row in results["rows"])
    failed = [str(row["fault"] or "random input") for row in results["rows"] if row["failed"]]
    lines = [
        f"**{sums['tried']:,} attacks: {sums['held']:,} held, {sums['failed']:,} failed**"
        f"{' (' + ', '.join(failed) + ')' if failed else ''}, {sums['skipped']:,} skipped, "
        f"{results['seconds'] / 60:.0f} minutes.",
        f"Attacks by row: {counts}.",
    ]
    return "\n".join(lines)


def write_floods() -> str:
    """Write what `benchmarks/floods.py` measured."""
    results = read_report("floods")
    rows = []
    for name, row in results["attacks"].items():
        memory = ", ".join(f"{row[f'memory_mb_{when}']:.0f}" for when in ("before", "most", "after"))
        times = ", ".join(f"{row[f'health_{what}_ms']:.1f}" for what in ("p50", "p99", "most"))
        rows.append(["no flood" if name == "nobody" else name, f"{row['sent_mib']:,.0f}", memory, times])
    columns = [
        *("flood", ">sent, MiB", ">memory before, highest, after (MB)"),
        ">`/health/live` p50, p99, highest (ms)",
    ]
    nice = f"attackers at nice {results['nice_value_of_attackers']}"
    note = f"{results['seconds']:.0f} s each; {results['cores']} cores, {nice}."
    return make_table(columns, rows, note)


def write_threads() -> str:
    """Write what `benchmarks/train_threads.py` measured."""
    results = read_report("train_threads")
    rows = [
        [
            f"`{row['recipe']}`",
            row["load"],
            *(f"{row[way]['examples_per_second']:,.0f}" for way in ("before", "after", "one thread")),
        ]
        for row in results["rows"]
    ]
    columns = ["recipe", "machine", ">default threads", ">`nse train`", ">one thread"]
    rounds = f"Examples per second, median of {results['rounds']} alternating rounds"
    machine = f"{results['machine']['cores']} cores, torch {results['machine']['torch']}"
    return make_table(columns, rows, f"{rounds}; {machine}.")


def write_speed() -> str:
    """Write the README's table of speeds."""
    answers, http = read_report("answers"), read_report("http")
    h200, cpu = read_report("h200"), read_report("cpu")
    shapes = [
        ("H200", h200, OURS, CUDNN, 128, 25),
        ("H200", h200, OURS, CUDNN, 32, 400),
        ("2 CPU cores", cpu, find_our_backend(cpu["rows"]), "lstm", 128, 25),
        ("2 CPU cores", cpu, find_our_backend(cpu["rows"]), "lstm", 8, 400),
    ]
    lines = ["| measure | figure | machine |", "| --- | ---: | --- |"]
    for machine, rows, *sides, B, T in shapes:
        shape = {"B": B, "T": T, "dtype": "float32", "mode": "train"}
        ours, lstm = (find_row(rows["rows"], shape | {"backend": side}) for side in sides)
        ratio = f"{ours['ms'] / lstm['ms']:.1f} times"
        lines.append(f"| training time over a two-layer `nn.LSTM`, {B} x {T} words | {ratio} | {machine} |")
    start = answers["start"]["seconds"]["first answer"]
    lines += [
        f"| `nse predict` on a file | {answers['file']['pairs_per_second']:,.0f} pairs/s | 2 CPU cores |",
        f"| HTTP, {http['clients']} clients | {http['http']['pairs_per_second']:,.0f} pairs/s, "
        f"p99 {http['http']['p99_ms']:.0f} ms | 2 CPU cores |",
        f"| first answer of a new process | {start:.1f} s | 2 CPU cores |",
    ]
    shapes = {(row["B"], row["T"], row["mode"]) for row in cpu["rows"]}
    ratios = [
        compute_cpu_ratio(cpu["rows"], dict(zip(("B", "T", "mode"), shape, strict=True))) for shape in shapes
    ]
    costs = f"{min(ratios):.1f} to {max(ratios):.1f} times a two-layer `nn.LSTM`"
    return "\n".join([*lines, "", f"On two CPU cores an NSE costs {costs}, by length and batch."])


def write_house() -> str:
    """Write what `benchmarks/house.py` counted."""
    return house_table(read_result("house"))


def read_report(name: str) -> dict[str, Any]:
    """Read a JSON file of `benchmarks/results`."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


TABLES = {
    "CONTRIBUTING.md": {"house": write_house},
    "README.md": {"results": write_summary, "speed": write_speed},
    "docs/benchmarks.md": {
        "cpu": write_cpu,
        "cpu peers": write_cpu_peers,
        "cpu growth": write_cpu_growth,
        "instruction sets": write_instruction_sets,
        "gains": write_gains,
        "h200": partial(write_h200, "ms"),
        "h200 memory": partial(write_h200, "kept_mb"),
        "steps": write_h200_steps,
        "tasks": write_tasks,
        "answers": write_answers,
        "answers on a GPU": write_answers_on_a_gpu,
    },
    "docs/models.md": {"precision": write_precision},
    "docs/nli.md": {"demo": write_demo},
    "docs/pictures.md": {"paper": write_paper_and_here, "access": write_access},
    "docs/recipes.md": {f"keys of {section}": partial(write_keys, section) for section in SECTIONS},
    "docs/reliability.md": {
        "attacks": write_attacks,
        "floods": write_floods,
        "fuzz": write_fuzz,
        "soak": write_soak,
    },
    "docs/serving.md": {"http": write_http},
    "docs/training.md": {"threads": write_threads},
    "docs/translation.md": {"elsewhere": write_elsewhere},
}
PAGES = {
    "snli": "docs/nli.md",
    "wikiqa": "docs/answers.md",
    "sst": "docs/sentences.md",
    "documents": "docs/documents.md",
    "translation": "docs/translation.md",
}
for task, document in PAGES.items():
    TABLES.setdefault(document, {}).update(
        {task: partial(write_results, task), "tried": partial(write_tried, task)}
    )
CPU_PICTURE = "sweeps-cpu.svg"
PICTURES = {"docs/images/sweeps.svg": ("h200", "rows", {"series": GPU, "B": 32})}
if "growth" in read_report("cpu"):
    PICTURES[f"docs/images/{CPU_PICTURE}"] = ("cpu", "growth", {"series": CPU, "B": 8})


def fill_tables(document: str) -> str:
    """Return the text of a document with new tables."""
    text = (ROOT / document).read_text("utf-8")
    for name, make in TABLES[document].items():
        text, count = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, make=make: f"<!-- {name} -->\n{make()}\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            sys.exit(f"{document} must have one place for the table {name}, it has {count}")
    return text


if __name__ == "__main__":
    for document in TABLES:
        (ROOT / document).write_text(fill_tables(document), "utf-8")
    for picture, (name, key, options) in PICTURES.items():
        draw_sweeps(read_report(name)[key], ROOT / picture, **options)
