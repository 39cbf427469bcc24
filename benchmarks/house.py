"""Measure what a reader of the source meets: structure, names and words.

    python benchmarks/house.py --out docs/results/house.json                         # this tree
    python benchmarks/house.py OLD --before --out docs/results/house.json            # an earlier tree, once
    python benchmarks/house.py --package litgpt=DIR --out docs/results/house.json    # another package

`--coverage FILE` adds the branch coverage that `coverage json` wrote, `--seconds N` the time of `make test`.
Prints tables, or JSON with `--json`. The docstring of each function says how it counts.
"""

import argparse
import ast
import json
import re
import statistics
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nse.files import write_text

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
"""Names of the members of the three taxonomies of one idea."""

CHOICE = "nse.ops.dispatch"
"""Module that chooses the fastest backend."""

PLACES = ("purpose.py", "hub.py", "inference/kinds.py", "tasks/__init__.py")
"""Where a taxonomy is defined, in either tree."""

FORMS = re.compile(r"predict(ions?)?|labels|rank(s|ed|ing)?|translat(e|ed|ions?)|encode|vectors|trace")
"""Forms of the five verbs, and of what they give."""

OTHERS = {"encode_text", "encode_items", "encode_inputs", "translate_errors"}
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
    "functions named by a participle, %": (3, None),
    "docstrings that open with The, What, How ..., %": (10, None),
    "class names used twice": (0, None),
    "file stems used twice": (0, None),
    "lines of the reading path": (1050, None),
    "seconds of `make test`": (300, None),
}
"""Limit that must hold, and the aim."""

IRREGULAR = re.compile(
    "begun|bound|bought|brought|broken|built|caught|chosen|dealt|done|drawn|felt|forgotten|found|frozen|given"
    "|gone|grown|heard|held|hidden|kept|known|laid|left|lent|lost|made|meant|met|said|seen|sent|shown|shut|sold"
    "|spent|spoken|stood|sought|taken|taught|thought|told|torn|understood|won|worn|wound|written"
)
"""Participles without -ed."""

VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
"""Verbs that end like a participle."""

RIDDLES = re.compile(r"(The|What|Whether|How|Of|Which|Where|When|Who|Whose|Why|An?|All|Each|Every|Its|One)\b")
"""Openings of a docstring that says neither what is done nor what is returned."""

COLUMNS = (
    "files",
    "lines",
    "functions",
    "classes",
    "records",
    "median lines of a function",
    "90th percentile",
    "longest function",
    "functions named by a participle, %",
    "docstrings that open with The, What, How ..., %",
    "class names used twice",
    "file stems used twice",
)
"""Figures that can be taken of any package."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Package:
    """Python source of a package, parsed once.

    Args:
        source: Folder of the package.
    """

    def __init__(self, source: Path):
        self.source = source
        self.files = {
            file.relative_to(self.source).as_posix(): file for file in sorted(self.source.rglob("*.py"))
        }
        self.texts = {name: file.read_text("utf-8") for name, file in self.files.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def measure(self) -> dict[str, Any]:
        """Measure sizes and names."""
        functions = [node for _, node in self.nodes(Function)]
        classes = [node for _, node in self.nodes(ast.ClassDef)]
        sizes = [(node.end_lineno or 0) - node.lineno + 1 for node in functions]
        docstrings = [text for text in map(ast.get_docstring, functions) if text]
        participles = sum(is_participle(split_name(node.name)[0]) for node in functions)
        stems = [Path(name).stem for name in self.files if not name.endswith("__init__.py")]
        counts = (
            len(self.files),
            sum(map(self.lines, self.files)),
            len(functions),
            len(classes),
            sum(map(is_record, classes)),
            round(statistics.median(sizes)),
            round(statistics.quantiles(sizes, n=10)[-1]),
            max(sizes),
            percentage(participles, len(functions)),
            percentage(sum(bool(RIDDLES.match(text)) for text in docstrings), len(docstrings)),
            count_repeated(node.name for node in classes),
            count_repeated(stems),
        )
        return dict(zip(COLUMNS, counts, strict=True))

    def lines(self, name: str) -> int:
        """Count the lines of a file."""
        return len(self.texts[name].splitlines())

    def nodes(self, kind: Any) -> Iterator[tuple[str, Any]]:
        """Yield every node of a kind, with its file."""
        for name, tree in self.trees.items():
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kind))


class House(Package):
    """Source tree of this project.

    Args:
        tree: Root of the repository.
    """

    def __init__(self, tree: Path):
        super().__init__(tree / "src" / "nse")
        self.tree = tree
        self.modules = {module_name(name): name for name in self.files}

    def measure(self) -> dict[str, Any]:
        """Measure everything but the coverage and the seconds of the tests."""
        imported = self.closure(self.home_of("load"))
        verbs, doors = self.verbs(), self.doors()
        tests = [file.read_text("utf-8") for file in (self.tree / "tests").rglob("test_*.py")]
        return {
            "root modules": sum("/" not in name and not name.startswith("__") for name in self.files),
            "levels of the import contract": self.contract(),
            "longest chain of imports": self.longest_chain(),
            "modules that nse.load imports": len(imported),
            "lines that nse.load imports": sum(self.lines(self.modules[name]) for name in imported),
            "taxonomies": len(self.taxonomies()),
            "comparisons of their names": len(self.comparisons()),
            "definitions of five verbs": len(verbs),
            "files of these definitions": len({name for name, _ in verbs}),
            "documented doors to a model": len(doors),
            "of which fast": sum(doors.values()),
            **super().measure(),
            "lines of the reading path": sum(map(self.lines, self.reading_path())),
            "test functions": sum(
                len(re.findall(r"^ *(?:async )?def test_", text, re.MULTILINE)) for text in tests
            ),
            "words of README.md": count_words(self.tree / "README.md"),
            "words of docs": sum(map(count_words, (self.tree / "docs").glob("*.md"))),
            "words of CONTRIBUTING.md, CHANGELOG.md, SECURITY.md": sum(
                count_words(self.tree / f"{name}.md") for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")
            ),
        }

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

    def reading_path(self) -> list[str]:
        """List the files that docs/reading-order.md numbers."""
        text = (self.tree / "docs" / "reading-order.md").read_text("utf-8")
        return re.findall(r"^\| \d+ \| `src/nse/([\w/]+\.py)`", text, re.MULTILINE)

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
        what chooses the fastest backend.
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
                            doors[home] = home in self.modules and CHOICE in self.closure(home)
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


def is_participle(word: str) -> bool:
    """Tell whether a word is a participle, by its ending or by a list."""
    regular = word.endswith("ed") and len(word) > 3 and word not in VERBS
    return regular or IRREGULAR.fullmatch(word) is not None


def count_repeated(names: Iterable[str]) -> int:
    """Count the names that stand more than once."""
    return sum(number > 1 for number in Counter(names).values())


def count_words(file: Path) -> int:
    """Count the words of a file, as `wc -w` does."""
    return len(file.read_text("utf-8").split())


def percentage(part: int, whole: int) -> float:
    """Return a part in percent, to one decimal."""
    return round(100 * part / max(whole, 1), 1)


def split_name(name: str) -> list[str]:
    """Split a name into its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def branch_coverage(file: Path) -> float:
    """Read how many of the branches tests take, in percent, from what `coverage json` wrote."""
    totals = json.loads(file.read_text("utf-8"))["totals"]
    return percentage(totals["covered_branches"], totals["num_branches"])


def table(report: Mapping[str, Any]) -> str:
    """Format the figures as Markdown: before and after, then beside other packages."""
    before, after = report["before"], report["after"] or report["before"]
    lines = ["| | before | after | must | aim |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in after:
        cells = [before.get(name), after[name], *TARGETS.get(name, (None, None))]
        lines.append(f"| {name} | {' | '.join(map(show, cells))} |")
    columns = {"nse": after, **report.get("others", {})}
    lines += ["", f"| | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    for name in COLUMNS:
        lines.append(f"| {name} | {' | '.join(show(column.get(name)) for column in columns.values())} |")
    return "\n".join(lines)


def show(cell: float | None) -> str:
    """Format a figure, or nothing."""
    return "" if cell is None else f"{cell:,}"


def main() -> None:
    """Measure a tree or a package, and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, nargs="?", default=ROOT, help="root of a checkout")
    parser.add_argument("--before", action="store_true", help="the tree is the earlier one")
    parser.add_argument("--package", metavar="NAME=DIR", help="measure another package instead")
    parser.add_argument("--coverage", type=Path, help="output of `coverage json`")
    parser.add_argument("--seconds", type=int, help="seconds that `make test` took")
    parser.add_argument("--out", type=Path, help="JSON file to update")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    report: dict[str, Any] = {"before": {}, "after": {}, "others": {}}
    if args.out and args.out.exists():
        report |= json.loads(args.out.read_text("utf-8"))
    if args.package:
        name, _, folder = args.package.partition("=")
        report["others"][name] = Package(Path(folder)).measure()
    else:
        side = "before" if args.before else "after"
        measured = {
            "branches covered, %": branch_coverage(args.coverage) if args.coverage else None,
            "seconds of `make test`": args.seconds,
        }
        kept = {name: report[side].get(name) for name in measured}
        added = {name: kept[name] if value is None else value for name, value in measured.items()}
        report[side] = House(args.tree).measure() | added
    if args.out:
        write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1) if args.json else table(report))


if __name__ == "__main__":
    sys.exit(main())
