"""Errors say what to type on the command line, and only there."""

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nse
from nse.cli.fixes import FIXES, describe_error
from nse.cli.main import app
from nse.errors import DataError

SOURCE = Path(nse.__file__).parent
BELOW = [file for file in sorted(SOURCE.rglob("*.py")) if "cli" not in file.relative_to(SOURCE).parts]
COMMANDS = "train|predict|rank|translate|encode|data|serve|explore|export|bench|recipes|evaluate|table|demo"
TYPED = re.compile(rf"(?<![\w-])--[a-z][a-z-]+|\bnse ({COMMANDS})\b")
DOCUMENTS = {"card.py"}  # a model card shows commands


def read_strings(file):
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_an_error_is_printed_with_its_fix():
    assert describe_error(DataError("snli: no train.jsonl")) == "snli: no train.jsonl"
    error = DataError("snli: no train.jsonl", ("fetch", "snli", "my data"))
    assert describe_error(error) == "snli: no train.jsonl; type `nse data fetch snli --data my data`"


@pytest.mark.parametrize("file", [file for file in BELOW if file.name not in DOCUMENTS], ids=lambda f: f.stem)
def test_code_below_the_command_line_names_no_option_and_no_command(file):
    assert [text for text in read_strings(file) if TYPED.search(text)] == []


def test_the_page_names_no_option_and_no_command():
    for file in [*SOURCE.rglob("*.js"), *SOURCE.rglob("*.html")]:
        assert not TYPED.search(file.read_text("utf-8")), file


def test_every_fix_is_used():
    strings = {text for file in BELOW for text in read_strings(file)}
    assert FIXES.keys() <= strings


def test_flags_have_no_type_in_the_help_text():
    help_text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "120"}).output
    assert "--resume" in help_text
    assert "<bool>" not in help_text
