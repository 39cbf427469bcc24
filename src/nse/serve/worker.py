"""Engines that compute batches: worker processes on a CPU, so that computing never delays the event loop."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from nse.errors import NSEError
from nse.inference.batches import compute_request, count_cores
from nse.inference.model import Model
from nse.serve.observe import Log

GRACE_PERIOD = 5.0  # seconds for a process to end, or to answer a ping, before it is killed
START_TIMEOUT = 60.0  # seconds for a new process to load the model, before it is killed
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds between two attempts to start a process; the pause doubles

_starting = threading.Semaphore(4)  # processes at a time: each needs memory for another copy of the model


class EngineDiedError(Exception):
    """Raised when a worker process has died; the request may be the cause if it was delivered."""

    def __init__(self, message: str, delivered: bool = True):
        super().__init__(message)
        self.delivered = delivered


class Engine:
    """Model that computes in the calling thread."""

    def __init__(self, model: Model):
        self.model = model
        self.ready = True  # False while a process is being replaced
        self.replaced = 0  # number of replacements

    def compute(self, output: str, rows: Sequence[Any], beam: int | None, batch_size: int) -> Tensor:
        """Compute rows in batches."""
        return compute_request(self.model, output, rows, beam, batch_size)


class EngineProcess(Engine):
    """Model in a worker process, which is replaced when it dies or hangs.

    The first process is forked before the server starts threads, and shares the memory of the model. Later
    ones get the model through a pipe, since its folder may have changed.
    """

    def __init__(self, model: Model):
        super().__init__(model)
        self.busy_since: float | None = None
        self.lock = threading.Lock()  # of the pipe
        self.stopped = threading.Event()
        self._start("fork", model)
        atexit.register(self.stop)

    def compute(self, output: str, rows: Sequence[Any], beam: int | None, batch_size: int) -> Tensor:
        """Compute rows in the process; raise `EngineDiedError` if it dies or is killed."""
        with self.lock:
            if not self.ready:
                raise EngineDiedError("the worker process is being replaced", delivered=False)
            self.busy_since, delivered = time.monotonic(), False
            try:
                self.pipe.send((output, rows, beam, batch_size))
                delivered = True
                result = self.pipe.recv()
            except (EOFError, OSError):
                self.ready = False
                raise EngineDiedError("the worker process has died", delivered) from None
            finally:
                self.busy_since = None
        if isinstance(result, BaseException):
            raise result
        return torch.from_numpy(result)

    def watch(self, timeout: float, log: Log, on_change: Callable[[], None]) -> None:
        """Start a thread that replaces the process when it dies, or does not answer within the timeout."""
        self.log, self.on_change = log, on_change
        threading.Thread(target=self._watch, args=[timeout], name="nse-watch", daemon=True).start()

    def stop(self, seconds: float = GRACE_PERIOD) -> None:
        """End the process: after its current batch, or by force after some seconds."""
        self.close()
        self.process.join(seconds)
        self._kill()

    def close(self) -> None:
        """Close the pipe, so that the process ends after its current batch and is not replaced."""
        self.stopped.set()
        self.ready = False
        self.pipe.close()

    def _kill(self) -> None:
        self.process.kill()  # SIGKILL also ends a process that is stopped by SIGSTOP
        self.process.join()

    def _watch(self, timeout: float) -> None:
        while not self.stopped.is_set():
            since = self.busy_since
            seconds = timeout if since is None else since + timeout - time.monotonic()
            has_died = bool(wait([self.process.sentinel], max(0.0, seconds)))
            hangs = not has_died and self.ready and self._hangs(timeout)
            if (has_died or hangs or not self.ready) and not self.stopped.is_set():
                self._replace(hangs)

    def _hangs(self, timeout: float) -> bool:
        """Return whether the process exceeds the timeout with a batch, or does not answer a ping."""
        if not self.lock.acquire(blocking=False):
            since = self.busy_since
            return since is not None and time.monotonic() - since >= timeout
        try:
            self.pipe.send(None)
            if not self.pipe.poll(max(timeout, GRACE_PERIOD)):
                return True
            self.pipe.recv()
        except (EOFError, OSError):
            self.ready = False
        finally:
            self.lock.release()
        return False

    def _replace(self, hangs: bool) -> None:
        """Start a new process, with retries."""
        self.ready, start = False, time.monotonic()
        self.on_change()
        self.process.join(0 if hangs else GRACE_PERIOD)
        self._kill()
        reason = "did not answer" if hangs else "died"
        self.log.put("engine_lost", process=self.process.pid, code=self.process.exitcode, reason=reason)
        with self.lock:  # free soon: `compute` raises because the process is dead
            self.pipe.close()
        tries, pause = 1, FIRST_PAUSE
        while error := self._restart():
            if tries == 1 and not self.stopped.is_set():
                self.log.put_error("cannot start a worker process; trying again", error)
            if self.stopped.wait(pause):
                return
            tries, pause = tries + 1, min(2 * pause, MAX_PAUSE)
        seconds = round(time.monotonic() - start, 1)
        self.log.put("engine_replaced", process=self.process.pid, seconds=seconds, tries=tries)
        self.replaced += 1
        self.ready = not self.stopped.is_set()
        self.on_change()

    def _restart(self) -> Exception | None:
        """Start a process and send it the model; return the error if that fails."""
        with _starting:
            try:
                content = pickle.dumps(self.model)
                self._start("spawn", None)  # a process with threads must not be forked
            except Exception as error:
                return error
            timer = threading.Timer(START_TIMEOUT, self.process.kill)
            timer.daemon = True
            timer.start()
            failure: Exception | None
            try:
                self.pipe.send_bytes(content)
                failure = self.pipe.recv()
            except (EOFError, OSError):
                self.process.join(GRACE_PERIOD)
                failure = EngineDiedError(f"exit code {self.process.exitcode} before it was ready")
            except Exception as error:
                failure = error
            timer.cancel()
            if failure or self.stopped.is_set():
                self._kill()
                self.pipe.close()
            return failure

    def _start(self, method: str, model: Model | None) -> None:
        context: Any = multiprocessing.get_context(method)
        pipe, child_pipe = context.Pipe()
        inherited = pipe if model else None  # a forked process inherits this end
        process = context.Process(target=run_engine, args=(child_pipe, inherited, model), name="nse-engine")
        try:
            process.start()
        except BaseException:
            pipe.close()
            raise
        finally:
            child_pipe.close()
        self.pipe, self.process = pipe, process


def make_engines(model: Model, workers: int | None) -> Sequence[Engine]:
    """Make the engines: worker processes on a CPU, by default one per core; threads elsewhere."""
    if model.device.type != "cpu":
        return [Engine(model) for _ in range(workers or 1)]
    torch.set_num_threads(1)  # threads on one batch would wait for each other after each small step
    engine = EngineProcess if sys.platform == "linux" else Engine
    return [engine(model) for _ in range(workers or count_cores())]


def stop_engines(engines: Sequence[Engine], seconds: float) -> None:
    """End all processes within some seconds."""
    processes = [engine for engine in engines if isinstance(engine, EngineProcess)]
    for engine in processes:
        engine.close()
    end = time.monotonic() + seconds
    for engine in processes:
        engine.stop(max(0.0, end - time.monotonic()))


def run_engine(pipe: Connection, inherited: Connection | None, model: Model | None) -> None:
    """Compute batches from a pipe until its other end is closed; without a model, receive it first."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the server even when hanging
    if inherited:
        inherited.close()  # else the pipe would never be closed at the other end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server handles them
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        if model is None:
            try:
                model = pipe.recv()
            except Exception as error:
                pipe.send(error)
                return
            pipe.send(None)
        assert model is not None
        engine = Engine(model)
        while True:
            arguments = pipe.recv()
            pipe.send(arguments and compute_or_return_error(engine, *arguments))  # None is a ping


def compute_or_return_error(engine: Engine, *arguments: Any) -> Any:
    """Compute rows; return a NumPy array, or an error that can be pickled, with its traceback as a note."""
    try:
        return engine.compute(*arguments).numpy()
    except NSEError as error:
        return error
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        return error
