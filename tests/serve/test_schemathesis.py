"""schemathesis sends a running server valid and invalid requests, made from its OpenAPI description."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults.made_models import save_model
from serve.running import run_server
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

SETTINGS = Path(__file__).with_name("schemathesis.toml")
RUN = "from schemathesis.cli import schemathesis; schemathesis()"
KEY = "correct-horse-battery"


def run_schemathesis(address, folder, examples, *words):
    """Check that schemathesis finds no issue; return the number of its requests."""
    program = [sys.executable, "-c", RUN, "--config-file", str(SETTINGS), "run", f"{address}/openapi.json"]
    settings = ["--checks", "all", "--max-examples", str(examples), "--generation-database", "none"]
    answer = subprocess.run(
        [*program, *settings, "--no-color", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert answer.returncode == 0, answer.stdout[-5000:] + answer.stderr[-2000:]
    assert "No issues found" in answer.stdout
    return int(re.search(r"(\d+) generated, \1 passed", answer.stdout)[1])


def test_schemathesis_finds_no_issue_in_a_server_with_api_keys(tmp_path):
    (tmp_path / "keys").write_text(KEY)
    with run_server(save_sentence_model(tmp_path / "mine"), "--api-key-file", tmp_path / "keys") as (
        address,
        server,
    ):
        header = f"Authorization: Bearer {KEY}"
        assert run_schemathesis(address, tmp_path, 12, "--header", header) > 100
        assert KEY not in server.read_log()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [save_sentence_model, save_model, save_ranking_model, save_translator, save_document_model]
)
def test_schemathesis_finds_no_issue_in_any_kind_of_model(tmp_path, make):
    make(tmp_path / "mine")
    with run_server(tmp_path / "mine", "--no-access-log") as (address, _):
        assert run_schemathesis(address, tmp_path, 200) > 500
