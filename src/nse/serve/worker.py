"""What computes: other processes, so that no crash and no model at work holds up who talks to clients."""

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
from nse.inference.batches import compute_request, cores
from nse.inference.model import Model
from nse.serve.observe import Log

PATIENCE = (
    5.0  # seconds in which a process ends that was told to, or an idle one answers, before it is killed
)
STARTING = 60.0  # seconds within which another process is there, or it is killed and a next one tried
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two tries: each is twice the one before it

_starting = threading.Semaphore(4)  # processes at a time: for each the model is in memory once more


class DiedError(Exception):
    """A process that computed has died, perhaps of the question, if that was delivered."""

    def __init__(self, message: str, delivered: bool = True):
        super().__init__(message)
        self.delivered = delivered


class Engine:
    """A model that computes in the thread that asks it."""

    def __init__(self, model: Model):
        self.model = model
        self.ready = True  # whether it can be asked; not while another process is being started
        self.replaced = 0  # how many processes followed the first one

    def compute(self, what: str, rows: Sequence[Any], beam: int | None, batch: int) -> Tensor:
        """Compute rows, many at a time."""
        return compute_request(self.model, what, rows, beam, batch)


class EngineProcess(Engine):
    """A process with a model, and the line to it. One that dies or hangs is followed by another.

    Made before a server has threads, it shares the memory of the model with the server. Those that follow get
    the model through the line, as it was loaded: its folder may have changed or gone since.
    """

    def __init__(self, model: Model):
        super().__init__(model)
        self.since: float | None = None  # when it was asked what it now computes
        self.using = threading.Lock()  # the line
        self.ended = threading.Event()
        self._start("fork", model)
        atexit.register(self.end)

    def compute(self, what: str, rows: Sequence[Any], beam: int | None, batch: int) -> Tensor:
        """Let the process compute rows; a `DiedError` where it has died or was killed because it hung."""
        with self.using:
            if not self.ready:
                raise DiedError("the process that computes is being replaced", delivered=False)
            self.since, delivered = time.monotonic(), False
            try:
                self.line.send((what, rows, beam, batch))
                delivered = True
                found = self.line.recv()
            except (EOFError, OSError):
                self.ready = False  # before anybody asks again
                raise DiedError("the process that computed this has died", delivered) from None
            finally:
                self.since = None
        if isinstance(found, BaseException):
            raise found
        return torch.from_numpy(found)

    def watch(self, seconds: float, log: Log, changed: Callable[[], None]) -> None:
        """Replace the process whenever it dies or hangs, idle or for so long at one batch, and tell so."""
        self.log, self.changed = log, changed
        threading.Thread(target=self._watch, args=[seconds], name="nse-watch", daemon=True).start()

    def end(self, patience: float = PATIENCE) -> None:
        """Let the process end: at once if it has nothing to do, soon if it has, else by force."""
        self.dismiss()
        self.process.join(patience)
        self._kill()

    def dismiss(self) -> None:
        """Tell the process to end when it is done, and start no other."""
        self.ended.set()
        self.ready = False
        self.line.close()

    def _kill(self) -> None:
        self.process.kill()  # which ends a process that is stopped, too
        self.process.join()

    def _watch(self, seconds: float) -> None:
        while not self.ended.is_set():
            since = self.since
            left = seconds if since is None else since + seconds - time.monotonic()
            died = bool(wait([self.process.sentinel], max(0.0, left)))
            hangs = not died and self.ready and self._hangs(seconds)
            if (died or hangs or not self.ready) and not self.ended.is_set():
                self._replace(hangs)

    def _hangs(self, seconds: float) -> bool:
        """Tell whether it is late with an answer, or idle and does not even say that it is there."""
        if not self.using.acquire(blocking=False):
            since = self.since
            return since is not None and time.monotonic() - since >= seconds
        try:
            self.line.send(None)
            if not self.line.poll(max(seconds, PATIENCE)):
                return True
            self.line.recv()
        except (EOFError, OSError):
            self.ready = False
        finally:
            self.using.release()
        return False

    def _replace(self, hangs: bool) -> None:
        """Start another process, and try again until there is one."""
        self.ready, begun = False, time.monotonic()
        self.changed()
        self.process.join(0 if hangs else PATIENCE)
        self._kill()
        reason = "did not answer" if hangs else "died"
        self.log.put("engine_lost", process=self.process.pid, code=self.process.exitcode, reason=reason)
        with self.using:  # soon: whoever waited for an answer has heard that there is none
            self.line.close()
        tries, pause = 1, FIRST_PAUSE
        while error := self._start_again():
            if tries == 1 and not self.ended.is_set():
                self.log.error("a process that computes cannot be started; it is tried again", error)
            if self.ended.wait(pause):
                return
            tries, pause = tries + 1, min(2 * pause, LONGEST_PAUSE)
        seconds = round(time.monotonic() - begun, 1)
        self.log.put("engine_replaced", process=self.process.pid, seconds=seconds, tries=tries)
        self.replaced += 1
        self.ready = not self.ended.is_set()
        self.changed()

    def _start_again(self) -> Exception | None:
        """Start a process and hand it the model, or give back what went wrong."""
        with _starting:
            try:
                content = pickle.dumps(self.model)
                self._start("spawn", None)  # a process that has threads by now must not be forked
            except Exception as error:  # no memory, no room for another process
                return error
            timer = threading.Timer(STARTING, self.process.kill)  # which ends the wait, whatever it hangs at
            timer.daemon = True
            timer.start()
            wrong: Exception | None
            try:
                self.line.send_bytes(content)
                wrong = self.line.recv()
            except (EOFError, OSError):
                self.process.join(PATIENCE)
                wrong = DiedError(f"it ended with exit code {self.process.exitcode} before it was ready")
            except Exception as error:
                wrong = error
            timer.cancel()
            if wrong or self.ended.is_set():
                self._kill()
                self.line.close()
            return wrong

    def _start(self, method: str, model: Model | None) -> None:
        context: Any = multiprocessing.get_context(method)
        line, theirs = context.Pipe()
        ours = line if model else None  # which a process that is forked has, too
        process = context.Process(target=run_engine, args=(theirs, ours, model), name="nse-engine")
        try:
            process.start()
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        self.line, self.process = line, process


def make_engines(model: Model, workers: int | None) -> Sequence[Engine]:
    """Make what computes: on a CPU one for each core by default, where they can be forked processes."""
    if model.device.type != "cpu":
        return [Engine(model) for _ in range(workers or 1)]
    torch.set_num_threads(1)  # several cores at one batch would wait for each other after each small step
    kind = EngineProcess if sys.platform == "linux" else Engine
    return [kind(model) for _ in range(workers or cores())]


def end_all(engines: Sequence[Engine], patience: float) -> None:
    """Let processes end, all of them within so many seconds."""
    processes = [engine for engine in engines if isinstance(engine, EngineProcess)]
    for engine in processes:
        engine.dismiss()
    end = time.monotonic() + patience
    for engine in processes:
        engine.end(max(0.0, end - time.monotonic()))


def run_engine(line: Connection, other: Connection | None, model: Model | None) -> None:
    """Compute what comes through the line until its other end is closed; first the model, if not given."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: one that hangs ends with the server, too
    if other:
        other.close()  # which a forked process has too, and there would be no end as long as it lives
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # which are for the server, and sent to its whole group
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        if model is None:
            try:
                model = line.recv()
            except Exception as error:
                line.send(error)
                return
            line.send(None)
        assert model is not None
        engine = Engine(model)
        while True:
            question = line.recv()
            line.send(question and compute_safely(engine, *question))  # none asks if it still answers


def compute_safely(engine: Engine, *question: Any) -> Any:
    """Compute rows; what was computed, or what went wrong, as it travels."""
    try:
        return engine.compute(*question).numpy()
    except NSEError as error:
        return error
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        return error
