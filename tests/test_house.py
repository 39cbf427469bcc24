"""The house keeps its own rules: equations, recipes, figures, documents and commands that are true."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import documents_room
import forking
import nse
import stand_in
from benchmarks.house import TARGETS, House
from benchmarks.speed.sweeps import compute_fingerprint
from nse import config, tasks
from nse.tasks import load_recipe, make_recipe_class
from nse.tasks.recipe import list_recipes, read_headline
from nse.viz.trace import MemoryTrace

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nse"
FILES = sorted(SOURCE.rglob("*.py"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "src/nse/ops/README.md"]
DOCUMENTS += sorted(f"docs/{f.name}" for f in (ROOT / "docs").glob("*.md"))
MARKER = re.compile(r"# \(eq\. ([\d, ]+)\)")


def markers():
    """Every (equation, file, function) that the source marks."""
    result = set()
    for file in FILES:
        text = file.read_text("utf-8")
        functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
        for number, line in enumerate(text.split("\n"), start=1):
            if match := MARKER.search(line):
                around = [f for f in functions if f.lineno <= number <= (f.end_lineno or 0)]
                name = max(around, key=lambda f: f.lineno).name
                where = file.relative_to(ROOT).as_posix()
                result |= {(int(n), where, name) for n in match[1].split(",")}
    return result


@pytest.fixture(scope="module")
def house():
    """The figures of this tree."""
    return House(ROOT).measure()


def table_rows(document):
    rows = [line.strip("|").split("|") for line in document.split("\n") if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


PAPER_TO_CODE = ROOT / "docs" / "paper-to-code.md"
NAMED = re.compile(r"`(src/nse/[\w/.-]+)`(?: `(\w+)`)?")


def definitions(file):
    """Names of the functions, methods, classes and constants that a Python file defines."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_paper_to_code_lists_every_marked_equation_and_no_other():
    equations = PAPER_TO_CODE.read_text("utf-8").split("## Equations")[1].split("\n## ")[0]
    listed = set()
    for numbers, _, places in table_rows(equations)[2:]:
        listed |= {(int(n), *place) for place in NAMED.findall(places) for n in numbers.split(",")}
    assert listed == markers()


def test_paper_to_code_names_files_and_functions_that_exist():
    for file, name in NAMED.findall(PAPER_TO_CODE.read_text("utf-8")):
        assert (ROOT / file).is_file(), file
        assert not name or name in definitions(ROOT / file), f"{file}: {name}"


def test_paper_to_code_covers_the_sections_tables_figures_and_the_appendix():
    parts = PAPER_TO_CODE.read_text("utf-8").split("## Sections, tables, figures")[1].split("\n## ")[0]
    listed = {part for first, *_ in table_rows(parts)[2:] for part in first.split(", ")}
    tasks_of_the_paper = {f"4.{n}" for n in range(1, 6)} | {f"table {n}" for n in range(1, 6)}
    assert listed == tasks_of_the_paper | {"figure 1", "figure 2", "appendix A"}


def test_the_reading_path_is_short_and_leads_from_the_equations_to_a_trace():
    path = House(ROOT).reading_path()
    assert [Path(file).stem for file in path] == ["reference", "encoder", "pair", "nli", "loop", "trace"]


def test_the_reference_has_all_fifteen_equations():
    assert {n for n, where, _ in markers() if where == "src/nse/ops/reference.py"} == set(range(1, 16))


def test_every_public_name_is_documented():
    assert all(getattr(nse, name).__doc__ for name in nse.__all__ if name != "__version__")


@pytest.mark.parametrize("table", tasks.TABLES)
def test_every_key_of_a_recipe_is_documented(table):
    undocumented = [entry.key for entry in config.describe(make_recipe_class(table)) if not entry.doc]
    assert undocumented == []


@pytest.mark.parametrize("table", tasks.TABLES)
def test_recipe_keys_in_the_documents(table):
    task, source = tasks.TABLES[table]
    written = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    sections = re.findall(r"<!-- keys of \w+ -->\n(.*?)<!-- end -->", written, re.DOTALL)
    names = {task.kind.name, *source.list_names()}
    if "own" in names:
        names = {task.kind.name, "own/*", f"own/{task.kind.name}"}
    rows = [
        [key, *row]
        for section in sections
        for key, recipes, *row in table_rows(section)[2:]
        if not recipes or names & set(recipes.split(", "))
    ]
    wanted = [
        [f"`{key}`", kind, f"`{default}`", doc]
        for key, kind, default, doc in config.describe(make_recipe_class(table))
        if kind != "section"
    ]
    assert sorted(rows) == sorted(wanted), "run `make tables`"


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_loads_and_tells_its_command(name):
    recipe = load_recipe(name)
    assert recipe.data.name == name.split("/")[0]  # the folder is the data
    text = list_recipes()[name].read_text("utf-8")
    assert read_headline(list_recipes()[name])
    assert f"#     nse train {name} --out " in text


def test_files_stay_small_and_named_for_what_they_hold():
    for file in FILES:
        assert len(file.read_text("utf-8").split("\n")) <= 450, file
        assert file.stem not in ("utils", "helpers", "common", "misc"), file


def test_versions_are_pinned():
    pins = (ROOT / "constraints.txt").read_text("utf-8").split("\n")
    names = {
        line.split("==")[0].lower().replace("_", "-"): line.split("==")[1] for line in pins if "==" in line
    }
    assert names["torch"] == "2.13.0"
    assert names["lightning"] == names["pytorch-lightning"]
    assert names["lightning"] not in ("2.6.2", "2.6.3")
    assert all(line.startswith("#") or "==" in line for line in pins if line)
    wanted = re.findall(r'^  "([a-z-]+)[>=\[]', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    missing = {name for name in wanted if name not in names and name != "neural-semantic-encoders"}
    assert missing == set()


def test_version_is_told_alike():
    assert f"version: {nse.__version__}" in (ROOT / "CITATION.cff").read_text("utf-8")


TABLES = [
    "CONTRIBUTING.md",
    "README.md",
    "docs/benchmarks.md",
    "docs/models.md",
    "docs/pictures.md",
    "docs/recipes.md",
    "docs/reliability.md",
    "docs/serving.md",
    "docs/training.md",
    "docs/nli.md",
    "docs/answers.md",
    "docs/sentences.md",
    "docs/translation.md",
]
if (ROOT / "docs" / "results" / "documents").is_dir():  # measured, or not yet
    TABLES.append("docs/documents.md")


@pytest.mark.parametrize("document", TABLES)
def test_tables_are_made_from_the_measured_figures(document):
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    assert document in tables["TABLES"]
    assert tables["fill_tables"](document) == (ROOT / document).read_text("utf-8"), "run `make tables`"
    for picture, (report, key, _) in tables["PICTURES"].items():  # what, not how: that is matplotlib's
        rows = tables["read_report"](report)[key]
        assert compute_fingerprint(rows) in (ROOT / picture).read_text("utf-8"), "run `make tables`"


def test_pictures_in_the_documents_are_of_their_traces():
    made = runpy.run_path(str(ROOT / "benchmarks" / "pictures.py"))
    for name, (model, *texts) in made["SENTENCES"].items():
        trace = MemoryTrace.load(made["TRACES"] / f"{name}.json")
        assert (trace.model["name"], [text.text for text in trace.texts]) == (model, texts)
        for file, picture in made["draw_pictures"](name, trace).items():
            assert (ROOT / "docs" / "images" / file).read_text("utf-8") == picture, (
                "run benchmarks/pictures.py"
            )


DOORS = {
    "httptools": {"serve"},
    "huggingface_hub": {"inference/hub.py"},
    "lightning": {"train"},
    "matplotlib": {"viz"},
    "numpy": {"cli", "data", "inference", "metrics", "nn", "ops", "tasks", "text", "train", "viz"},
    "onnx_ir": {"inference/onnx.py"},
    "onnxruntime": {"inference/onnx.py"},
    "prometheus_client": {"serve"},
    "pyarrow": {"cli"},
    "pydantic": {"serve"},
    "ray": {"cli/ray.py"},
    "rich": {"cli", "console.py", "data", "train", "viz"},
    "sacrebleu": {"metrics"},
    "sacremoses": {"text"},
    "safetensors": {"data", "inference"},
    "starlette": {"serve"},
    "tensorboard": {"train"},
    "torch": {"cli", "inference", "nn", "ops", "serve", "tasks", "text", "train"},
    "triton": {"ops"},
    "typer": {"cli"},
    "uvicorn": {"serve"},
}
"""Which rooms or files may import which libraries."""


def libraries(file):
    """The libraries that a file imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module}
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"nse"}


def test_every_library_comes_in_by_its_door():
    used = set()
    for file in FILES:
        place = file.relative_to(SOURCE)
        for library in libraries(file):
            assert {place.as_posix(), place.parts[0]} & DOORS.get(library, set()), f"{place}: {library}"
            used.add(library)
    assert used == set(DOORS)


def test_figures_and_pictures_need_no_pytorch():
    files = [file for room in ("viz", "metrics") for file in (SOURCE / room).glob("[a-z]*.py")]
    modules = [f"nse.{file.parent.name}.{file.stem}" for file in files]
    check = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize(
    "row",
    [
        "root modules",
        "levels of the import contract",
        "modules that nse.load imports",
        "lines that nse.load imports",
        "definitions of five verbs",
        "documented doors to a model",
        "functions named by a participle, %",
        "docstrings that open with The, What, How ..., %",
        "class names used twice",
        "file stems used twice",
        "lines of the reading path",
    ],
)
def test_the_house_stays_as_small_as_it_must(row, house):
    assert house[row] <= TARGETS[row][0]


def test_import_is_light():
    """`import nse` takes neither lightning nor typer nor rich."""
    check = "import sys, nse; print([m for m in ('lightning', 'typer', 'rich') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"^(\$ )?(nse|python3?|pip|torchrun|curl|tail|make|from [\w.]+ import|import) ", re.MULTILINE
)


def blocks(document):
    """Every block of a document, with its language, in their order."""
    return FENCED.findall((ROOT / document).read_text("utf-8"))


def runs(document):
    """Its blocks of commands or Python."""
    return [(language, block) for language, block in blocks(document) if language in ("bash", "python")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """What the environment says so that programs of the documents are those that stand for them."""
    folder = tmp_path_factory.mktemp("programs")
    for name in stand_in.PROGRAMS:
        script = f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/stand_in.py" {name} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "NSE_FORKS": forking.get_address(), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def room(tmp_path, monkeypatch):
    """The folder in which commands run, with what the reader of a document has at hand."""
    documents_room.write_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSE_DATA", raising=False)
    monkeypatch.setenv("NSE_CACHE", str(tmp_path / "cache"))
    yield tmp_path
    stand_in.stop()


LONG = ("docs/benchmarks.md", "docs/export.md", "docs/models.md", "docs/training.md")
"""Documents whose commands take longest: clusters, several processes, benchmarks, runs of other documents."""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, marks=[pytest.mark.slow] if document in LONG else [])
        for document in DOCUMENTS
        if runs(document)
    ],
)
def test_what_the_documents_show_runs(document, room, programs):
    """Run as written, one block after the other, in a folder of their own."""
    environment = {**os.environ, **programs, "HOME": str(room)}
    for recipe in documents_room.RUNS.get(document, []):
        shell(f"nse train {recipe} --data DATA", environment)
    scope: dict[str, object] = {}
    for language, block in runs(document):
        if language == "python":
            exec(compile(block, document, "exec"), scope)
        else:
            shell(block, environment)


def shell(block, environment):
    """Run commands, which must end well."""
    run = ["bash", "-euo", "pipefail", "-c", block]
    answer = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, (block, answer.stdout, answer.stderr)
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_command_hides_in_a_block_that_is_not_run(document):
    hidden = [block for language, block in blocks(document) if language not in ("bash", "python")]
    assert [block for block in hidden if COMMAND.search(block)] == []


def test_make_targets_that_documents_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for document in ["README.md", "CONTRIBUTING.md", "docs/index.md"]:
        for name in re.findall(r"(?:`|\n)make ([a-z-]+)", (ROOT / document).read_text("utf-8")):
            assert name in targets, f"{document} says make {name}"


def test_documents_are_all_in_the_navigation_and_their_links_lead_somewhere():
    navigation = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(navigation) == sorted(f.name for f in (ROOT / "docs").glob("*.md"))
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_room_of_the_house_is_described():
    described = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for entry in SOURCE.iterdir():
        if entry.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed"):
            assert f"`src/nse/{entry.name}" in described or f"`{entry.name}`" in described, entry.name
