"""Write the tables and pictures of the documents from the figures that the program measured: `make tables`.

A table stands between `<!-- NAME -->` and `<!-- end -->`; everything between is replaced.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nse import config
from nse.tasks import TABLES as TASKS_OF_TABLES
from nse.tasks import TASKS, recipe_class
from nse.train import results as tables
from nse.train.demo import MODELS
from nse.viz.trace import MemoryTrace

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import speed as bench
from benchmarks.house import table as house_table
from benchmarks.pictures import TRACES, compared
from benchmarks.speed.report import CUDNN, OURS, find
from benchmarks.speed.sweeps import sweeps

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ELSEWHERE = ROOT / "docs" / "results" / "elsewhere"
TRIED = {task: ROOT / "docs" / "results" / f"{task}-tried.json" for task in TASKS_OF_TABLES}


def demo() -> str:
    """The table of `nse demo --json > docs/results/demo.json`."""
    lines = [
        "| model | test | unseen combinations of words | training, two cores |",
        "| --- | --- | --- | --- |",
    ]
    for row in json.loads((ROOT / "docs" / "results" / "demo.json").read_text("utf-8")):
        figures = (
            f"{100 * row['accuracy']:.1f}% | {100 * row['accuracy_unseen']:.1f}% | {row['seconds']:.0f} s"
        )
        lines.append(f"| {MODELS[row['model']]} | {figures} |")
    return "\n".join(lines)


def cpu() -> str:
    """The table of `make bench`."""
    return bench.markdown(report("cpu")).strip()


def h200(sheet: str) -> str:
    """A table of `make bench-gpu`."""
    return bench.markdown(report("h200"), sheet).strip()


def tasks() -> str:
    """The table of `benchmarks/tasks.py`: how fast models train beside the first of their data set."""
    lines = ["| recipe | in a second | | times the baseline's time |", "| --- | ---: | --- | ---: |"]
    for row in report("h200-tasks")["rows"]:
        speed = f"{row['in_a_second']:,.0f} | {row['unit']}"
        lines.append(f"| {row['recipe']} | {speed} | {row['times_the_baseline']:.2f} |")
    return "\n".join(lines)


SECTIONS = ("recipe", "data", "model", "train")
"""Tables of recipe keys; `recipe` has those outside every section."""


def keys(section: str) -> str:
    """Write the keys of a recipe's section, each once, with the recipes that have it."""
    recipes = [(task, source) for task in TASKS.values() for source in task.sources]
    places: dict[config.Entry, list[str]] = {}
    for task, source in sorted(recipes, key=lambda recipe: "own" in recipe[1].names()):
        names = [f"own/{task.kind.name}"] if "own" in source.names() else source.names()
        for entry in config.describe(recipe_class(source.table)):
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
            for name in source.names()
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


def results(task: str, folder: str = "") -> str:
    """The table of `nse table TASK --markdown`, of the folder of that name or of another in docs/results."""
    return tables.format_markdown(
        task, tables.compute_table(task, ROOT / "docs" / "results" / (folder or task))
    ).strip()


def tried(task: str) -> str:
    """The table of `benchmarks/tried.py TASK`: a change beside the recipe as it is, same seeds."""
    lines = ["| recipe | with | seeds | dev | as it is |", "| --- | --- | ---: | ---: | ---: |"]
    figure = TASKS_OF_TABLES[task][0].shown[0]
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in json.loads(TRIED[task].read_text("utf-8")):
        dev = result(task, row["recipe"], row["seed"])[figure.measure]["dev"]
        groups.setdefault((row["recipe"], *row["changes"]), []).append((row["dev"], dev))
    for (recipe, *changes), found in groups.items():
        means = (f"{figure.scale * fmean(values):.{figure.digits}f}" for values in zip(*found, strict=True))
        changed = ", ".join(f"`{change}`" for change in changes)
        lines.append(f"| {recipe} | {changed} | {len(found)} | {' | '.join(means)} |")
    return "\n".join(lines)


def elsewhere() -> str:
    """What `nse evaluate RUN --on DATA --split test --json` told of translators, a file for each."""
    lines = [
        "| model | seed | on the test of | BLEU | sentences | paper's |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for file in sorted(ELSEWHERE.rglob("*.json")):
        row = json.loads(file.read_text("utf-8"))
        name, _, seed = file.stem.rpartition("-")
        counts = f"{row['n']:,} | {row['published']:,}"
        told = f"{row['data']} | {100 * row['bleu']:.2f} | {counts}"
        lines.append(f"| {file.parent.name}/{name} | {seed} | {told} |")
    return "\n".join(lines)


def paper_and_here() -> str:
    """What `benchmarks/pictures.py` found for the sentence of appendix A, beside the paper's."""
    rows = compared(MemoryTrace.load(TRACES / "child.json"))
    lines = ["| word | composed with, in the paper | here | z here | |", "| --- | --- | --- | ---: | --- |"]
    for word, there, here, weight in rows:
        cells = " | ".join(f"`{each}`" for each in (word, there, here))
        lines.append(f"| {cells} | {weight:.2f} | {'the same' if there == here else ''} |")
    same = sum(there == here for _, there, here, _ in rows)
    chance = len(rows) / (len(rows) - 1)  # each word one of the others
    told = f"{same} of {len(rows)} are the same; {chance:.1f} would be by chance."
    return "\n".join([*lines, "", told])


def access() -> str:
    """What `benchmarks/access.py` counted."""
    found = json.loads((ROOT / "docs" / "results" / "access.json").read_text("utf-8"))
    lines = [
        "| | of all slots | accesses per slot | of the most accessed | of the least accessed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    groups = {f"**{name} words**": row for name, row in found["groups"].items()}
    for name, row in {**groups, **found["parts"]}.items():
        shares = [f"{100 * row[key]:.1f}%" for key in ("share_of_most_accessed", "share_of_least_accessed")]
        cells = [f"{100 * row['share_of_slots']:.1f}%", f"{row['accesses_per_slot']:.2f}", *shares]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    counts = f"{found['sentences']:,} sentences, {found['slots']:,} slots, model {found['model']}"
    return "\n".join([*lines, "", f"SNLI {found['split']}: {counts}."])


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


def summary() -> str:
    """One line for each task, out of all results."""
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


def answers() -> str:
    """What `benchmarks/answers.py` and `http_speed.py` measured, of the shipped SNLI model."""
    found, http = report("answers"), report("http")
    file, loop, start, over = found["file"], found["loop"], found["start"], http["http"]
    per_second = loop["pairs_per_second"]
    rows = [
        (
            f"`nse predict snli --file` on SNLI test, {file['pairs']:,} pairs, the whole process",
            f"{file['pairs_per_second']:,.0f} pairs/s",
        ),
        ("`model.predict` in Python", f"{per_second['nse']:,.0f} pairs/s"),
        (
            f"the plain reference loop at batch 32 ({per_second['reference']:,.0f} pairs/s): times faster",
            f"{loop['times_faster']:.1f}",
        ),
        (
            f"HTTP on loopback, {http['clients']} clients, a pair a request",
            f"{over['pairs_per_second']:,.0f} pairs/s, {100 * http['share']:.0f}% of the "
            f"{http['file']['pairs_per_second']:,.0f} from a file in the same run",
        ),
        ("of these, p50 and p99", f"{over['p50_ms']:.0f} and {over['p99_ms']:.0f} ms"),
        ("`nse predict` from its start to its answer", f"{start['seconds']['first answer']:.2f} s"),
        ("`import nse` over `import torch`", f"+{start['import nse over torch']:.2f} s"),
    ]
    if peer := found.get("peer"):
        speeds = peer["sentences_per_second"]
        best = max(speed for name, speed in speeds.items() if name != "nse")
        rows.append(
            (
                f"vectors of {peer['sentences']:,} sentences; {peer['peer']}: {best:,.0f} a second",
                f"{speeds['nse']:,.0f} a second, {peer['times_faster']:.1f} times as many",
            )
        )
    lines = [f"| {what} | {told} |" for what, told in rows]
    versions = f"torch {found['environment']['torch']}, {found['environment']['threads']} cores, float32"
    return "\n".join(["| | |", "| --- | ---: |", *lines, "", f"Shipped model `snli`, {versions}."])


def answers_on_a_gpu() -> str:
    """What `benchmarks/answers.py --device cuda` measured."""
    found = report("answers-h200")
    lines = ["| batch | from texts to answers | the model alone |", "| ---: | ---: | ---: |"]
    for row in found["gpu"]:
        told = (f"{row[name]:,.0f} pairs/s" for name in ("texts per second", "model per second"))
        lines.append(f"| {row['batch']:,} | {' | '.join(told)} |")
    environment = found["environment"]
    versions = f"{environment['device']}, torch {environment['torch']}, float32"
    return "\n".join([*lines, "", f"SNLI test, {found['gpu'][0]['pairs']:,} pairs, {versions}."])


def soak() -> str:
    """What `benchmarks/soak.py` measured."""
    found = report("soak")
    times = found["sent"] / found["seconds"] / found["capacity_per_second"]
    rows = [
        (
            "capacity: 128 clients, each of which asks when it is answered",
            f"{found['capacity_per_second']:,.0f} requests/s",
        ),
        (f"sent in {found['seconds'] / 60:.0f} minutes", f"{found['sent']:,}: {times:.2f} times as many"),
        ("served + refused with 429", f"{found['served']:,} + {found['refused']:,}"),
        ("any other outcome", f"{found['other']:,}"),
        ("p50 and p99 of what was served", f"{found['p50_ms']:.0f} and {found['p99_ms']:.0f} ms"),
        (
            "memory of the server and its processes, in the second and the last minute",
            f"{found['memory_mb_after_warming_up']:.0f} and {found['memory_mb_at_the_end']:.0f} MB",
        ),
    ]
    return "\n".join(["| | |", "| --- | ---: |", *(f"| {what} | {told} |" for what, told in rows)])


def fuzz() -> str:
    """What `benchmarks/fuzz.py` and `fuzz_coverage.py` tried."""
    results = report("fuzz")
    lines = ["| what was broken | inputs | what came of them |", "| --- | ---: | --- |"]
    for kind, row in results.items():
        if kind not in ("environment", "readers"):
            outcomes = ", ".join(f"{name}: {count:,}" for name, count in row["outcomes"].items())
            lines.append(f"| {kind} | {row['inputs']:,} | {outcomes} |")
    if readers := results.get("readers"):
        lines += ["", "| reader, guided by coverage | minutes | inputs | branches reached |"]
        lines.append("| --- | ---: | ---: | ---: |")
        for name, row in readers.items():
            lines.append(f"| {name} | {row['seconds'] / 60:.0f} | {row['inputs']:,} | {row['branches']:,} |")
    return "\n".join(lines)


def attacks() -> str:
    """What `benchmarks/attacks.py` tried, a line for each row of the table of faults."""
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    titles = dict(re.findall(r"^\| (\d+) \| ([^|]*) \|", text, re.MULTILINE))
    results = report("attacks")
    lines = ["| | attack | tried | held | failed |", "| --- | --- | ---: | ---: | ---: |"]
    for row in results["rows"]:
        title = titles[str(row["fault"])] if row["fault"] else "input at random, see below"
        figures = " | ".join(f"{row[key]:,}" for key in ("tried", "held", "failed"))
        lines.append(f"| {row['fault'] or ''} | {title} | {figures} |")
    sums = (f"**{sum(row[key] for row in results['rows']):,}**" for key in ("tried", "held", "failed"))
    lines.append(f"| | **sum** | {' | '.join(sums)} |")
    skipped = sum(row["skipped"] for row in results["rows"])
    minutes = f"{results['seconds'] / 60:.0f} minutes"
    return "\n".join([*lines, "", f"{skipped:,} more could not be tried on that machine. {minutes}."])


def floods() -> str:
    """Write what `benchmarks/floods.py` measured: memory and the time of /health/live under each flood."""
    results = report("floods")
    lines = ["| flood | sent, MiB | memory before, most, after (MB) | `/health/live`, p50, p99, worst (ms) |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, row in results["attacks"].items():
        sizes = ", ".join(f"{row[f'memory_mb_{when}']:.0f}" for when in ("before", "most", "after"))
        times = ", ".join(f"{row[f'health_{what}_ms']:.1f}" for what in ("p50", "p99", "most"))
        lines.append(f"| {name} | {row['sent_mib']:,.0f} | {sizes} | {times} |")
    nice = results["nice_value_of_attackers"]
    machine = f"{results['cores']} cores, the attackers among them at a nice value of {nice}"
    return "\n".join([*lines, "", f"{results['seconds']:.0f} s each, half more for all at once; {machine}."])


def threads() -> str:
    """Write what `benchmarks/train_threads.py` measured."""
    results = report("train_threads")
    lines = [
        "| recipe | machine | default threads | `nse train` | one thread |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in results["rows"]:
        speeds = [f"{row[way]['examples_per_second']:,.0f}" for way in ("before", "after", "one thread")]
        lines.append(f"| `{row['recipe']}` | {row['load']} | {' | '.join(speeds)} |")
    rounds = f"Examples per second, median of {results['rounds']} alternating rounds"
    machine = f"{results['machine']['cores']} cores, torch {results['machine']['torch']}"
    return "\n".join([*lines, "", f"{rounds}; {machine}."])


def speed() -> str:
    """Write the README's table of speeds."""
    answers, http = report("answers"), report("http")
    h200, cpu = report("h200"), report("cpu")
    shapes = [
        ("H200", h200, OURS, CUDNN, 128, 25),
        ("H200", h200, OURS, CUDNN, 32, 400),
        ("2 CPU cores", cpu, "lean", "lstm", 128, 25),
        ("2 CPU cores", cpu, "lean", "lstm", 8, 400),
    ]
    lines = ["| measure | figure | machine |", "| --- | ---: | --- |"]
    for machine, rows, *sides, B, T in shapes:
        shape = {"B": B, "T": T, "dtype": "float32", "mode": "train"}
        ours, lstm = (find(rows["rows"], shape | {"backend": side}) for side in sides)
        ratio = f"{ours['ms'] / lstm['ms']:.1f} times"
        lines.append(f"| training time over a two-layer `nn.LSTM`, {B} x {T} words | {ratio} | {machine} |")
    start = answers["start"]["seconds"]["first answer"]
    lines += [
        f"| `nse predict` on a file | {answers['file']['pairs_per_second']:,.0f} pairs/s | 2 CPU cores |",
        f"| HTTP, {http['clients']} clients | {http['http']['pairs_per_second']:,.0f} pairs/s, "
        f"p99 {http['http']['p99_ms']:.0f} ms | 2 CPU cores |",
        f"| first answer of a new process | {start:.1f} s | 2 CPU cores |",
    ]
    return "\n".join(lines)


def page() -> str:
    """What `make page` measured."""
    found = report("page")
    lines = ["| words | first time | median of 21 | most |", "| ---: | ---: | ---: | ---: |"]
    for row in found["drawn"]:
        times = [f"{row[key]:.0f} ms" for key in ("ms_first", "ms_median", "ms_most")]
        lines.append(f"| {row['words']} | {' | '.join(times)} |")
    size = f"Opening the page loads {found['bytes_in_all'] / 1000:.1f} kB in {len(found['bytes'])} files"
    return "\n".join([*lines, "", f"{size}. Chromium {found['browser']}, {found['cores']} cores."])


def house() -> str:
    """What `benchmarks/house.py` counted."""
    return house_table(json.loads((ROOT / "docs" / "results" / "house.json").read_text("utf-8")))


def result(task: str, recipe: str, seed: int) -> dict[str, Any]:
    """What a run of a recipe reported; a task of several data sets has a folder for each in its own."""
    name = recipe if recipe.startswith(f"{task}/") else f"{task}/{recipe}"
    return json.loads((ROOT / "docs" / "results" / f"{name}-{seed}.json").read_text("utf-8"))


def report(name: str) -> dict[str, Any]:
    """A report of `benchmarks/results`."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


TABLES = {
    "CONTRIBUTING.md": {"house": house},
    "README.md": {"results": summary, "speed": speed},
    "docs/benchmarks.md": {"cpu": cpu, "answers": answers, "answers on a GPU": answers_on_a_gpu},
    "docs/nli.md": {"demo": demo},
    "docs/reliability.md": {"fuzz": fuzz, "soak": soak},
    "docs/serving.md": {"http": answers, "soak": soak},
    "docs/pictures.md": {"paper": paper_and_here, "access": access, "page": page},
    "docs/recipes.md": {f"keys of {section}": partial(keys, section) for section in SECTIONS},
}
PAGES = {
    "snli": "docs/nli.md",
    "wikiqa": "docs/answers.md",
    "sst": "docs/sentences.md",
    "documents": "docs/documents.md",
    "translation": "docs/translation.md",
}
for task, page in PAGES.items():
    if (ROOT / "docs" / "results" / task).is_dir():  # measured, or not yet
        TABLES.setdefault(page, {})[task] = partial(results, task)
        TABLES[page] |= {"tried": partial(tried, task)} if TRIED[task].exists() else {}
if ELSEWHERE.is_dir():
    TABLES[PAGES["translation"]] |= {"elsewhere": elsewhere}
if (ROOT / "docs" / "results" / "translation-constant").is_dir():
    TABLES[PAGES["translation"]] |= {"constant": partial(results, "translation", "translation-constant")}
PICTURES = {}
if (RESULTS / "h200.json").exists():  # measured by those who have one
    sheets = {"h200": "main", "figures": "figures", "steps": "steps", "fits": "fits"}
    TABLES["docs/benchmarks.md"] |= {name: partial(h200, sheet) for name, sheet in sheets.items()}
    PICTURES["docs/images/sweeps.svg"] = "h200"
TABLES["docs/reliability.md"] |= {"attacks": attacks, "floods": floods}
TABLES["docs/training.md"] = {"threads": threads}
if (RESULTS / "h200-tasks.json").exists():
    TABLES["docs/benchmarks.md"] |= {"tasks": tasks}


def written(document: str) -> str:
    """The document's text with its tables made anew."""
    text = (ROOT / document).read_text("utf-8")
    for name, make in TABLES[document].items():
        text, found = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, make=make: f"<!-- {name} -->\n{make()}\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
        if found != 1:
            sys.exit(f"{document} should have one place for the table {name}, it has {found}")
    return text


if __name__ == "__main__":
    for document in TABLES:
        (ROOT / document).write_text(written(document), "utf-8")
    for picture, name in PICTURES.items():
        sweeps(report(name)["rows"], ROOT / picture)
