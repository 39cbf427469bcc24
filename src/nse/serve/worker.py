"""Processes that compute, so that neither a model at work nor one that crashes holds up who talks to clients.

In one process Python runs one thread at a time: threads that compute and the one that reads requests would
wait for each other after each small step of a model.
"""

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
from nse.inference.model import Model
from nse.inference.requests import Request
from nse.serve.log import Log

PATIENCE = 5.0
"""Seconds in which a process ends that was told to, or an idle one answers, before it is killed."""

STARTING = 60.0
"""Seconds within which another process is there, or it is killed and a next one tried."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two tries to start a process: each pause is twice the one before it."""

AT_ONCE = 4
"""Processes that are started at a time: for each the model is in memory once more."""

PARENT_DIED = 1
"""Linux's number for the signal that a process gets when the one that started it has died."""


_starting = threading.Semaphore(AT_ONCE)


class DiedError(Exception):
    """A process that computed has died, of its own or by somebody's hand.

    Args:
        message: What happened.
        delivered: Whether it had the question, which may be what it died of.
    """

    def __init__(self, message: str, delivered: bool = True):
        super().__init__(message)
        self.delivered = delivered


class Engine:
    """A process with a model, and the line to it. One that dies or hangs is followed by another.

    Made before a server has threads, it shares the memory of the model with the server. Those that follow get
    the model through the line, as it was loaded: its folder may have changed or gone since.

    Args:
        loaded: The model, on a CPU.

    Attributes:
        ready: Whether it can be asked; not while another process is being started.
        replaced: How many processes followed the first one.
    """

    def __init__(self, loaded: Model):
        self.loaded, self.ready, self.replaced = loaded, True, 0
        self.since: float | None = None  # when it was asked what it now computes
        self.using = threading.Lock()  # the line
        self.ended = threading.Event()
        self._start("fork", loaded)
        atexit.register(self.end)

    def computed(self, loaded: Model, request: Request, batch: int) -> Tensor:
        """What `nse.Model.compute` gives, which runs elsewhere.

        Raises:
            DiedError: The process has died, or was killed because it hung; the next one is on its way.
        """
        with self.using:
            if not self.ready:
                raise DiedError("the process that computes is being replaced", delivered=False)
            self.since = time.monotonic()
            try:
                found = self._ask((request.what, list(request.rows), request.beam, batch))
            finally:
                self.since = None
        if isinstance(found, BaseException):
            raise found
        return torch.from_numpy(found)

    def watch(self, seconds: float, log: Log, changed: Callable[[], None]) -> None:
        """Replace the process from now on whenever it dies or hangs, idle or at work.

        Args:
            seconds: How long it may work at one batch; who asked for that has been told 504 by then.
            log: Where it is noted.
            changed: Called when `ready` has changed.
        """
        self.log, self.changed = log, changed
        threading.Thread(target=self._watch, args=[seconds], name="nse-watch", daemon=True).start()

    def end(self, patience: float = PATIENCE) -> None:
        """Let the process end: at once if it has nothing to do, soon if it has, else by force."""
        self.dismiss()
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def dismiss(self) -> None:
        """Tell the process to end when it is done, and start no other."""
        self.ended.set()
        self.ready = False
        self.line.close()

    def _ask(self, question: Any) -> Any:
        """Send a question and wait for the answer; by whoever holds the line."""
        delivered = False
        try:
            self.line.send(question)
            delivered = True
            return self.line.recv()
        except (EOFError, OSError):
            self.ready = False  # before anybody asks again
            raise DiedError("the process that computed this has died", delivered) from None

    def _watch(self, seconds: float) -> None:
        while not self.ended.is_set():
            since = self.since
            left = seconds if since is None else since + seconds - time.monotonic()
            died = bool(wait([self.process.sentinel], max(0.0, left)))
            hangs = not died and self.ready and self._hangs(seconds)
            if (died or hangs or not self.ready) and not self.ended.is_set():
                self._replace(hangs)

    def _hangs(self, seconds: float) -> bool:
        """Whether it is late with an answer, or idle and does not even say that it is there."""
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
        self.process.kill()  # which ends a process that is stopped, too
        self.process.join()
        reason = "did not answer" if hangs else "died"
        self.log.put("engine_lost", process=self.process.pid, code=self.process.exitcode, reason=reason)
        with self.using:  # soon: whoever waited for an answer has heard that there is none
            self.line.close()
        tries, pause = 1, FIRST_PAUSE
        while error := self._start_in_turn():
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

    def _start_in_turn(self) -> Exception | None:
        with _starting:
            return self._start_again()

    def _start_again(self) -> Exception | None:
        """Start a process and hand it the model; what went wrong, if something did."""
        try:
            content = pickle.dumps(self.loaded)
            self._start("spawn", None)  # a process that has threads by now must not be forked
        except Exception as error:  # no memory, no room for another process
            return error
        timer = threading.Timer(STARTING, self.process.kill)  # which ends the wait, whatever it hangs at
        timer.daemon = True
        try:
            timer.start()
            self.line.send_bytes(content)
            wrong = self.line.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            wrong = DiedError(f"it ended with exit code {self.process.exitcode} before it was ready")
        except Exception as error:
            wrong = error
        timer.cancel()
        if wrong or self.ended.is_set():
            self.process.kill()
            self.process.join()
            self.line.close()
        return wrong  # type: ignore[no-any-return]

    def _start(self, method: str, loaded: Model | None) -> None:
        context: Any = multiprocessing.get_context(method)
        line, theirs = context.Pipe()
        ours = line if loaded else None  # which a process that is forked has, too
        process = context.Process(target=compute, args=(theirs, ours, loaded), name="nse-engine")
        try:
            process.start()
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        self.line, self.process = line, process


def end_all(engines: Sequence[Engine], patience: float) -> None:
    """Let processes end, all of them within so many seconds."""
    for engine in engines:
        engine.dismiss()
    end = time.monotonic() + patience
    for engine in engines:
        engine.end(max(0.0, end - time.monotonic()))


def separate(loaded: Model) -> bool:
    """Whether to compute in processes: on a CPU, where they can be forked."""
    return sys.platform == "linux" and loaded.device.type == "cpu"


def compute(line: Connection, other: Connection | None, loaded: Model | None) -> None:
    """Be such a process: compute what is asked for, until the other end of the line is closed.

    Args:
        line: Where questions come from.
        other: Its other end, where this process has inherited it.
        loaded: The model; without one it is the first thing that comes.
    """
    end_with_parent()
    if other:
        other.close()  # or there would be no end as long as this process lives
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # which are for the server, and sent to its whole group
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        if loaded is None:
            try:
                loaded = line.recv()
            except Exception as error:
                line.send(error)
                return
            line.send(None)
        assert loaded is not None
        while True:
            asked = line.recv()
            if asked is None:  # whether this process still answers
                line.send(None)
                continue
            what, rows, beam, batch = asked
            line.send(outcome(loaded, Request(what, rows, list, beam), batch))


def end_with_parent() -> None:
    """Let the system kill this process when the server dies: one that hangs would not notice."""
    ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)


def outcome(loaded: Model, request: Request, batch: int) -> Any:
    """What was computed, or what went wrong, as it travels."""
    try:
        return loaded.compute(request, batch).numpy()
    except NSEError as error:
        return error
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        return error
