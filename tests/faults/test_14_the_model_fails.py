"""Fault 14: the model fails on a request: that one is told so, the next is served; live is not ready."""

import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import nse
from nse.inference import folder as hub
from nse.nn.sentence import SentenceClassifier
from serve.running import list_children, read_error, read_events, read_json, read_metric, run_server, send
from small_models import save_sentence_model


def overflowing_model(folder):
    """A model whose weights are finite, and too large at one word: what it adds up to is inf - inf."""
    loaded = nse.load(save_sentence_model(folder.parent / "good"))
    assert isinstance(loaded.module, SentenceClassifier)
    with torch.no_grad():
        loaded.module.embedding.weight[loaded.vocabulary.encode(["bad"])] = 3e38
        loaded.module.encoder.nse[0].read.weight_ih_l0[:] = torch.tensor([100.0, -100.0] * 3)
    hub.save(folder, loaded.module, loaded.config, loaded.vocabulary, {})
    return folder


def test_scores_that_overflow_are_an_error(tmp_path):
    with run_server(overflowing_model(tmp_path / "mine"), "--max-wait-ms", 200) as (address, _):
        for path in ("/v1/predict", "/v1/encode", "/v1/trace"):
            message = read_error(send(address, path, {"texts": ["a bad film"]}), 503)
            assert message.startswith("the model's scores are NaN or infinite, for sentence 1")
            assert send(address, path, {"texts": ["a good film"]})[0] == 200
        # In one batch with others, the others are answered.
        texts = ["a good film", "a bad film", "a film", "bad", "the cat sleeps"]
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda text: send(address, "/v1/predict", {"texts": [text]}), texts))
        assert [answer[0] for answer in answers] == [200, 503, 200, 503, 200]
        assert read_metric(address, "nse_model_failures_total") == 5
        assert read_json(send(address, "/health/ready")) == {"status": "ready"}


def test_running_out_of_memory_is_an_error_and_the_server_survives(tmp_path):
    """The process may have little more memory than it has now: the system refuses torch what it asks for."""
    folder = save_sentence_model(tmp_path / "mine", size=256)
    large = {"texts": ["a ? . " * 90 + "a " * number for number in range(256)]}  # 100 MB and more, at once
    small = {"texts": ["good"]}
    with run_server(folder, "--max-batch", 4096, "--max-wait-ms", 500) as (address, server):
        assert send(address, "/v1/predict", small)[0] == 200
        [engine] = list_children(server.pid)
        status = Path(f"/proc/{engine}/status").read_text()
        room = int(status.split("VmSize:")[1].split()[0]) * 1024 + (64 << 20)
        resource.prlimit(engine, resource.RLIMIT_AS, (room, room))
        with ThreadPoolExecutor(3) as pool:  # which come into one batch
            answers = list(pool.map(lambda ask: send(address, "/v1/predict", ask), [small, large, small]))
        assert read_error(answers[1], 503) == "the model failed on this request; see the log of the server"
        assert answers[0][0] == answers[2][0] == send(address, "/v1/predict", small)[0] == 200
        assert read_json(send(address, "/health/ready")) == {"status": "ready"}
        [line] = read_events(server, "error")
        assert line["message"] == "the model failed on a request"
        assert "can't allocate memory" in line["traceback"]  # it was that, and in torch


def test_a_killed_worker_process_is_replaced(tmp_path):
    """As by a crash in a kernel, or by a system that is out of memory: the server goes on with another."""
    folder = save_sentence_model(tmp_path / "mine", size=64)
    long = {"texts": ["a good film " * 90 + "a " * number for number in range(64)]}
    with run_server(folder) as (address, server):
        [engine] = list_children(server.pid)
        before = worked(engine)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(send, address, "/v1/predict", long)
            while worked(engine) < before + 5:
                assert not first.done(), "it was too fast to see anything"
            os.kill(engine, signal.SIGKILL)
            message = read_error(first.result(), 503)
            assert message == "the model failed on this request; see the log of the server"
        assert read_json(send(address, "/health/live")) == {"status": "live"}
        assert len(read_json(send(address, "/v1/predict", long))["predictions"]) == 64
        [other] = [pid for pid in list_children(server.pid) if "spawn_main" in command_of(pid)]
        assert other != engine
        [line] = read_events(server, "error")
        assert "the worker process has died" in line["traceback"]
        [line] = read_events(server, "engine_lost")
        assert (line["process"], line["code"]) == (engine, -9)


def worked(pid):
    """For how many hundredths of a second a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def command_of(pid):
    """The words that a process was started with."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def test_a_batch_that_takes_too_long_times_out(tmp_path):
    """A request gets its 504 in time. What nobody waits for is given up; until then it is not ready."""
    folder = save_sentence_model(tmp_path / "mine", size=512)
    long = {"texts": ["a " * (600 + number) for number in range(32)]}
    with run_server(folder, "--timeout", 0.5) as (address, _):
        assert read_json(send(address, "/health/ready")) == {"status": "ready"}
        assert "no answer within 0.5 s" in read_error(send(address, "/v1/predict", long), 504)
        end, reasons = time.monotonic() + 60, set()
        while not read_metric(address, "nse_engines_replaced"):
            ready = send(address, "/health/ready")
            if ready[0] != 200:
                reasons.add(read_error(ready, 503))
            assert read_json(send(address, "/health/live")) == {"status": "live"}
            assert time.monotonic() < end
            time.sleep(0.05)
        assert "all worker processes have died or hung, and are being replaced" in reasons
        assert send(address, "/v1/predict", {"texts": ["good"]})[0] == 200


def test_internal_errors_are_not_sent_to_clients(tmp_path):
    """Errors as a GPU and as Python give them, put into the real process, on the first two requests alone."""
    first = (
        "import torch; from nse.serve import worker; real = worker.compute_request\n"
        "errors = [torch.OutOfMemoryError('CUDA: /secret/path'), MemoryError()]\n"
        "def sometimes(*given):\n"
        "    if errors: raise errors.pop(0)\n"
        "    return real(*given)\n"
        "worker.compute_request = sometimes\n"
    )
    with run_server(save_sentence_model(tmp_path / "mine"), first=first) as (address, server):
        for _ in range(2):
            answer = send(address, "/v1/predict", {"texts": ["good"]})
            assert read_error(answer, 503) == "the model failed on this request; see the log of the server"
        assert send(address, "/v1/predict", {"texts": ["good"]})[0] == 200
        one, two = read_events(server, "error", 2)
        assert "/secret/path" in one["traceback"]
        assert two["error"] == "MemoryError"
