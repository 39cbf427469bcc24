"""Measure the house: what a reader of the source meets, before and after, beside other packages.

    python benchmarks/house.py --out docs/results/house.json             # this tree; `before` stays as it is
    python benchmarks/house.py OLD --before --out docs/results/house.json   # the tree before, once

`--coverage FILE` takes the branch coverage from what `coverage json` wrote. Prints a table, with `--json` the
figures. How each is counted is told at its function.
"""

import argparse
import ast
import json
import re
import statistics
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nse.files import write

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^ *```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)

KINDS = {"pair", "ranking", "sentence", "document", "translation"}
TASKS = {
    "logic",
    "snli",
    "wikiqa",
    "sst",
    "documents",
    "own-pair",
    "own-sentence",
    "own-ranking",
    "own-translation",
}
COMMANDS = {"predict", "rank", "translate", "encode", "trace"}
NAMES = KINDS | TASKS | COMMANDS
"""What the three taxonomies of one idea call its members."""

PLACES = ("purpose.py", "hub.py", "inference/kinds.py", "tasks/__init__.py")
"""Where a taxonomy is defined, in either tree."""

FORMS = re.compile(r"predict(ions?)?|labels|rank(s|ed|ing)?|translat(e|ed|ions?)|encode|vectors|trace")
"""Forms of the five verbs, and of what they give."""

OTHERS = {"encode_text", "encode_items", "encode_given", "translate_errors"}
"""Texts become ids, and errors become others: not what the verbs are about."""

BELOW = {
    "ops",
    "nn",
    "text",
    "data",
    "tasks",
    "train",
    "metrics",
    "viz",
    "bench",
    "config",
    "files",
    "errors",
    "bounds",
}
"""Rooms and root modules where a model is not asked: the others are the way of a question."""

TARGETS = {
    "root modules": (4, None),
    "levels of the import contract": (10, 8),
    "modules that nse.load imports": (45, None),
    "lines that nse.load imports": (7500, None),
    "taxonomies": (1, None),
    "comparisons of their names": (0, None),
    "definitions of five verbs": (15, None),
    "documented doors to a model": (1, None),
    "of which fast": (1, None),
    "lines": (20500, 19000),
}
"""What must be reached, and what is aimed at."""

COLUMNS = ("files", "lines", "functions", "classes", "records", "median", "p90", "most")
ANCHORS = {
    "JoeyNMT": (25, 9420, 289, 42, 0, 16, 67, 481),
    "x-transformers": (20, 11138, 376, 91, 2, 7, 72, 512),
    "mamba_ssm": (54, 22511, 342, 41, 4, 35, 132, 693),
    "litgpt": (60, 17977, 496, 104, 22, 11, 77, 203),
    "sentence-transformers": (167, 36068, 965, 182, 8, 15, 77, 749),
    "nanoGPT": (15, 1220, 24, 6, 1, 10, 25, 55),
}
"""Other packages, counted in the same way: files to records, and lines of a function."""

LABELS = {"median": "median lines of a function", "p90": "their 90th percentile", "most": "the longest"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class House:
    """The source of a tree, read once.

    Args:
        tree: The root of the repository.
    """

    def __init__(self, tree: Path):
        self.tree, self.source = tree, tree / "src" / "nse"
        self.files = {
            file.relative_to(self.source).as_posix(): file for file in sorted(self.source.rglob("*.py"))
        }
        self.texts = {name: file.read_text("utf-8") for name, file in self.files.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.modules = {module_name(name): name for name in self.files}

    def measure(self) -> dict[str, Any]:
        """Measure everything but the coverage."""
        loaded = self.closure(self.home_of("load"))
        verbs, doors = self.verbs(), self.doors()
        functions = [node for _, node in self.nodes(Function)]
        classes = [node for _, node in self.nodes(ast.ClassDef)]
        sizes = [(node.end_lineno or 0) - node.lineno + 1 for node in functions]
        tests = [file.read_text("utf-8") for file in (self.tree / "tests").rglob("test_*.py")]
        return {
            "root modules": sum("/" not in name and not name.startswith("__") for name in self.files),
            "levels of the import contract": self.contract(),
            "longest chain of imports": self.longest_chain(),
            "modules that nse.load imports": len(loaded),
            "lines that nse.load imports": sum(self.lines(self.modules[name]) for name in loaded),
            "taxonomies": len(self.taxonomies()),
            "comparisons of their names": len(self.comparisons()),
            "definitions of five verbs": len(verbs),
            "files of these definitions": len({name for name, _ in verbs}),
            "documented doors to a model": len(doors),
            "of which fast": sum(doors.values()),
            "files": len(self.files),
            "lines": sum(map(self.lines, self.files)),
            "functions": len(functions),
            "classes": len(classes),
            "records": sum(map(is_record, classes)),
            "median": round(statistics.median(sizes)),
            "p90": round(statistics.quantiles(sizes, n=10)[-1]),
            "most": max(sizes),
            "test functions": sum(
                len(re.findall(r"^ *(?:async )?def test_", text, re.MULTILINE)) for text in tests
            ),
        }

    def lines(self, name: str) -> int:
        """Count the lines of a file."""
        return len(self.texts[name].splitlines())

    def nodes(self, kind: Any) -> Iterator[tuple[str, Any]]:
        """Yield every node of a kind, with its file."""
        for name, tree in self.trees.items():
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kind))

    def imports(self, name: str, lazy: bool) -> set[str]:
        """Find the modules of the package that a file imports, in functions too if `lazy`; no types."""
        found = set()
        for node in walk(self.trees[name], lazy):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        return found & self.modules.keys()

    def home_of(self, public: str) -> str:
        """Find the module that a name of the package's face comes from, as type checkers see it."""
        imports = [n for n in ast.walk(self.trees["__init__.py"]) if isinstance(n, ast.ImportFrom)]
        return next(str(n.module) for n in imports if public in [alias.name for alias in n.names])

    def closure(self, module: str) -> set[str]:
        """Follow imports at the top of modules; those that hold nothing but a docstring do not count."""
        found, rest = set[str](), [module]
        while rest:
            if (now := rest.pop()) not in found:
                found.add(now)
                rest += self.imports(self.modules[now], lazy=False)
        return {name for name in found if name != "nse" and self.lines(self.modules[name]) > 1}

    def contract(self) -> int:
        """Count the levels of the contract that says which room may import which."""
        contracts = tomllib.loads((self.tree / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
        return sum(len(contract["layers"]) for contract in contracts["contracts"] if "layers" in contract)

    def longest_chain(self) -> int:
        """Count the levels that such a contract needs at least: the longest chain of rooms and root modules.

        A room counts once however long the chains in it; imports in functions count; what the package's own
        face imports does not. Rooms that import each other in a circle are one.
        """
        edges: dict[str, set[str]] = {}
        for module, name in self.modules.items():
            if module not in ("nse", "nse.__main__"):
                others = {room(other) for other in self.imports(name, lazy=True) if other != "nse"}
                edges.setdefault(room(module), set()).update(others - {room(module)})

        @cache
        def reach(start: str) -> frozenset[str]:
            seen, rest = set[str](), [start]
            while rest:
                rest += [
                    other for other in edges.get(rest.pop(), ()) if other not in seen and not seen.add(other)
                ]
            return frozenset(seen)

        @cache
        def height(start: str) -> int:
            below = [other for other in reach(start) if start not in reach(other)]
            return 1 + max(map(height, below), default=0)

        return max(map(height, edges))

    def taxonomies(self) -> list[set[str]]:
        """Find sets of names that key the tables of a module; a part of another set is no further one.

        An alias table, from names to names, is none.
        """
        sets: list[set[str]] = []
        for tree in self.trees.values():
            tables = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
            names = set[str]()
            for table in tables:
                if isinstance(table, ast.Dict):
                    keys = {key.value for key in table.keys if isinstance(key, ast.Constant)}
                    is_alias = all(isinstance(v, ast.Constant) and v.value in NAMES for v in table.values)
                    names |= keys if len(keys) > 2 and keys <= NAMES and not is_alias else set()
            if names and names not in sets:
                sets.append(names)
        return [names for names in sets if not any(names < other for other in sets)]

    def comparisons(self) -> list[tuple[str, int]]:
        """Find where a kind, task or command is told by its name, outside of where they are defined.

        `x == "pair"`, `x in ("pair", "ranking")`, `x is PAIR`, `case "pair"`; not `"ranking" in x`.
        """
        found = []
        for name, node in self.nodes(ast.Compare | ast.match_case):
            compared = [node.pattern] if isinstance(node, ast.match_case) else node.comparators
            if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In | ast.NotIn):
                compared = [node.left, *compared]
            if name not in PLACES and any(named(part) & NAMES for part in compared):
                found.append((name, getattr(node, "lineno", 0)))
        return found

    def verbs(self) -> list[tuple[str, str]]:
        """Find functions, methods and classes named by a form of the five verbs, where a model is asked."""
        return [
            (name, node.name)
            for name, node in self.nodes(Function | ast.ClassDef)
            if name.split("/")[0].removesuffix(".py") not in BELOW
            and node.name not in OTHERS
            and any(FORMS.fullmatch(word) for word in split_name(node.name))
        ]

    def doors(self) -> dict[str, bool]:
        """Find the ways to a model that documents, examples and model cards show: whether each is fast.

        A door is what `load` or a verb is called on with the name of a model; it is fast if that imports
        what folds weights.
        """
        documents = [self.tree / "README.md", *(self.tree / "docs").glob("*.md"), *self.source.rglob("*.md")]
        code = [block for file in documents for block in FENCED.findall(file.read_text("utf-8"))]
        code += [file.read_text("utf-8") for file in (self.tree / "examples").glob("*.py")]
        shipped = {file.parent.name for file in self.source.glob("pretrained/*/config.json")}
        doors = {}
        for tree in map(ast.parse, map(textwrap.dedent, code)):
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            homes = {each.asname or each.name: f"{n.module}.{each.name}" for n in imports for each in n.names}
            for node in ast.walk(tree):
                match node:
                    case ast.Call(ast.Attribute(ast.Name(owner), verb), [ast.Constant(str(model)), *_]):
                        is_model = model in shipped or model.startswith(("runs/", "hf:"))
                        if is_model and verb in {"load", *COMMANDS}:
                            home = self.home_of("load") if owner == "nse" else homes[owner]
                            doors[home] = home in self.modules and "nse.nn.folded" in self.closure(home)
        return doors


def module_name(file: str) -> str:
    """Name the module of a file."""
    return ".".join(["nse", *file.removesuffix(".py").removesuffix("__init__").strip("/").split("/")]).rstrip(
        "."
    )


def room(module: str) -> str:
    """Name the room or root module that a module belongs to."""
    return module.split(".")[1]


def walk(tree: ast.AST, lazy: bool) -> Iterator[ast.AST]:
    """Yield nodes, but not those that only type checkers see, nor those of functions unless `lazy`."""
    for node in ast.iter_child_nodes(tree):
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not typing and (lazy or not isinstance(node, Function)):
            yield node
            yield from walk(node, lazy)


def is_record(node: ast.ClassDef) -> bool:
    """Tell whether a class only holds fields: a dataclass, a named tuple or a typed dictionary."""
    about = [ast.unparse(part) for part in (*node.bases, *node.decorator_list)]
    return any(re.search(r"dataclass|NamedTuple|TypedDict", part) for part in about)


def named(node: ast.AST) -> set[str]:
    """Collect the names that an operand or a pattern spells, also as constants such as PAIR."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return {name.lower()} if name.isupper() else set()
    inner = getattr(node, "elts", None) or getattr(node, "patterns", None) or [getattr(node, "value", None)]
    return set().union(*(named(part) for part in inner if isinstance(part, ast.AST)))


def split_name(name: str) -> list[str]:
    """Split a name into its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def branch_coverage(file: Path) -> float:
    """Read how many of the branches tests take, in percent, from what `coverage json` wrote."""
    totals = json.loads(file.read_text("utf-8"))["totals"]
    return round(100 * totals["covered_branches"] / totals["num_branches"], 1)


def table(report: Mapping[str, Any]) -> str:
    """Show the figures as Markdown: before and after, then other packages."""
    before, after = report["before"], report["after"] or report["before"]
    lines = ["| | before | after | must | aim |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in after:
        cells = [before.get(name), after[name], *TARGETS.get(name, (None, None))]
        shown = ["" if cell is None else f"{cell:,}" for cell in cells]
        lines.append(f"| {LABELS.get(name, name)} | {' | '.join(shown)} |")
    lines += ["", f"| | {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * len(COLUMNS)]
    rows = {"nse": [after[name] for name in COLUMNS], **ANCHORS}
    lines += [f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |" for name, cells in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure a tree, and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--before", action="store_true", help="the tree is the one before")
    parser.add_argument("--coverage", type=Path, help="what `coverage json` wrote")
    parser.add_argument("--out", type=Path, help="keep the figures in this file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    kept = json.loads(given.out.read_text("utf-8")) if given.out and given.out.exists() else {}
    figures = House(given.tree).measure()
    side = "before" if given.before else "after"
    if given.coverage:
        figures["branches covered, %"] = branch_coverage(given.coverage)
    elif "branches covered, %" in kept.get(side, {}):
        figures["branches covered, %"] = kept[side]["branches covered, %"]
    report = {"before": {}, "after": {}, **kept, side: figures}
    if given.out:
        write(given.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1) if given.json else table(report))


if __name__ == "__main__":
    sys.exit(main())
