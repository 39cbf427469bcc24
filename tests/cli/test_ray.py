"""Vectors by the workers of a Ray cluster are those that one process makes, whoever dies on the way."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import nse
from nse.cli import main as cli
from nse.cli import ray as cluster
from nse.cli.rows import Row
from nse.data.records import BadLine
from nse.errors import InputError, NSEError, RunError
from small_models import WORDS, save_sentence_model


@pytest.fixture
def model(tmp_path):
    return save_sentence_model(tmp_path / "model")


def children_of(process):
    """The processes below one, by what they call themselves."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            number = int(folder.name)
            parents[number] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[number] = (folder / "cmdline").read_text().split("\0")[0]
        except OSError:  # it has just ended
            parents.pop(int(folder.name), None)
    below, grown = {process}, True
    while grown:
        found = below | {number for number, parent in parents.items() if parent in below}
        below, grown = found, len(found) > len(below)
    return {number: names[number] for number in below - {process}}


def killed_in_the_middle(process, folder, seconds=100):
    """Kill one of two workers with a chunk in its hands as soon as something is written; say how much was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        size = sum(part.stat().st_size for part in folder.glob(".many.parquet.*.part"))
        busy = [number for number, name in children_of(process.pid).items() if name == "ray::Worker.answer"]
        if size and len(busy) == 2:
            os.kill(busy[0], signal.SIGKILL)
            return size
        time.sleep(0.02)
    pytest.fail(f"there was nobody to kill: {process.poll()}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for workers in /proc")
def test_a_killed_worker_loses_no_rows(model, tmp_path):
    chance, file = random.Random(1), tmp_path / "rows.jsonl"
    rows = [{"text": " ".join(chance.choices(WORDS, k=chance.randint(1, 9))), "id": n} for n in range(24_000)]
    rows[2_050]["text"], rows[16_000]["text"] = "", "good " * 2_000
    written = [json.dumps(row) for row in rows]
    written[20_000] = "{"
    file.write_text("\n".join(written) + "\n")
    words = ["encode", str(model), "--file", str(file), "--bad", "skip", "--device", "cpu", "--out"]
    alone = CliRunner().invoke(cli.app, [*words, str(tmp_path / "alone.parquet")])
    assert alone.exit_code == 0, alone.output

    out = tmp_path / "many.parquet"
    with subprocess.Popen(
        [sys.executable, "-m", "nse", *words, str(out), "--ray", "local", "--workers", "2"],
        # Ray gives its workers a niceness of 15, with which they would wait for the other tests.
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "RAY_worker_niceness": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            before = killed_in_the_middle(process, tmp_path)
            printed, told = process.communicate(timeout=150)
        finally:
            if process.poll() is None:
                process.terminate()
    assert (process.returncode, printed) == (0, ""), told
    assert before < 0.9 * out.stat().st_size
    one, other = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("alone", "many"))
    assert other.num_rows == 23_998
    assert other.drop_columns("vector").equals(one.drop_columns("vector"))
    vectors = [np.stack(each["vector"].to_numpy(zero_copy_only=False)) for each in (one, other)]
    assert np.allclose(*vectors, atol=1e-6)
    own = [line for line in told.splitlines() if line.startswith("nse: ")]  # Ray tells of the one that died
    assert own == [line.replace("alone", "many") for line in alone.stderr.splitlines()]
    assert len(own) == 3
    assert children_of(process.pid) == {}


def worker_for(model, **changes):
    version, files, settings = cluster.pack_model(
        cluster.WorkerSettings(str(model), "cpu", strict=True, batch=8)
    )
    files |= changes.get("files", {})
    return cluster.Worker((changes.get("version", version), files, settings))


def test_a_worker_needs_only_the_packed_model(model):
    worker, expected = worker_for(model), nse.load(model).encode(["good", "a film"])
    for file in model.iterdir():
        file.unlink()
    assert worker.answer([]) == []
    rows = [Row(1, ("good",)), Row(2, ("",)), BadLine(3, "no"), Row(7, ("a film",), "x")]
    found = worker.answer(rows)
    assert [each["number"] for each in (found[0], found[3])] == [1, 7]
    assert found[3]["id"] == "x"
    assert np.allclose([found[0]["vector"], found[3]["vector"]], expected, atol=1e-6)
    assert found[1].why.startswith("sentence 2 is empty")
    assert found[2] == BadLine(3, "no")


def test_an_error_of_a_worker_is_returned(model):
    worker, rows = worker_for(model), [Row(1, ("good",))]
    error = worker_for(model, version="0.0.1").answer(rows)
    assert str(error) == f"--ray: a worker has nse {nse.__version__} and you have 0.0.1"
    assert isinstance(worker_for(model, files={"config.json": b"{"}).answer(rows), NSEError)
    for weight in worker.model.module.parameters():
        weight.data.fill_(float("nan"))
    assert "NaN or infinite" in str(worker.answer(rows))


class OneWorker:
    """A worker that answers with the chunk, and late if that is what the chunk says."""

    def __init__(self, executor):
        self.executor = executor
        self.answer = self

    def remote(self, chunk):
        reference = Mock()
        reference.future.return_value = self.executor.submit(self.repeat, chunk)
        return reference

    @staticmethod
    def repeat(chunk):
        time.sleep(0.02 if chunk in ("0", "3", "7") else 0)
        return chunk


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("wrong", ["at a worker", "in the file"])
def test_answers_keep_the_order_of_the_chunks_up_to_an_error(workers, wrong, monkeypatch):
    def chunks():
        yield from map(str, range(20))
        if wrong == "at a worker":
            yield error
            yield "never answered"
        raise error

    error, found = RunError("broken off"), []
    with ThreadPoolExecutor(workers) as executor:
        team = [OneWorker(executor) for _ in range(workers)]
        monkeypatch.setattr(cluster, "connect", lambda *_: nullcontext())
        monkeypatch.setattr(cluster, "start_workers", lambda *_: (team, None))
        results = cluster.answer_chunks(
            "local", workers, chunks(), cluster.WorkerSettings("", "cpu", False, 1)
        )
        with pytest.raises(RunError, match="broken off"):
            found.extend(results)
    assert found == [str(number) for number in range(20)]


def test_addresses_without_a_cluster_are_refused(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, kind, message in [
        (f"127.0.0.1:{port}", RunError, f"there is no cluster at 127.0.0.1:{port}: .*refused"),
        ("localhost:99999", RunError, "there is no cluster at localhost:99999"),
        ("somewhere", InputError, "expected local, auto or HOST:PORT, got 'somewhere'"),
        ("ray://127.0.0.1:10001", InputError, "run the command on a machine of the cluster with --ray auto"),
    ]:
        with pytest.raises(kind, match=message):
            cluster.check_address(address)


def test_without_ray_the_error_says_how_to_install_it(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    file = tmp_path / "rows.txt"
    file.write_text("good\n")
    words = ["encode", model, "--file", file, "--out", tmp_path / "a.npy", "--ray", "local"]
    answer = CliRunner().invoke(cli.app, list(map(str, words)))
    assert isinstance(answer.exception, InputError)
    assert str(answer.exception).endswith("pip install 'neural-semantic-encoders[ray]'")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "rows.txt"]
