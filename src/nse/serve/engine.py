"""Processes that compute, so that neither a model at work nor one that crashes holds up who talks to clients.

In one process Python runs one thread at a time: threads that compute and the one that reads requests would
wait for each other after each small step of a model.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from nse import hub
from nse.asking import Asked
from nse.computing import Computed, computed
from nse.errors import NSEError

PATIENCE = 5.0
"""Seconds in which a process that was told to end does so, before it is ended."""


class DiedError(Exception):
    """A process that computed has died, of its own or by somebody's hand."""


class Engine:
    """A process with a model, and the line to it. One that dies is followed by another.

    Made before a server has threads, it shares the memory of the model with the server.

    Args:
        loaded: The model, on a CPU, as it computes fastest.
    """

    def __init__(self, loaded: hub.Model):
        self.folder, self.ended = loaded.folder, False
        self._begin("fork", loaded)
        atexit.register(self.end)

    def computed(self, loaded: hub.Model, asked: Asked, batch: int) -> Computed:
        """What `nse.computing.computed` gives, which runs elsewhere.

        Raises:
            DiedError: The process has died on it; the next one is on its way.
        """
        try:
            self.line.send((asked.what, list(asked.rows), asked.beam, batch))
            found = self.line.recv()
        except (EOFError, OSError):
            code = self._replaced()
            raise DiedError(f"the process that computed this has died with exit code {code}") from None
        if isinstance(found, BaseException):
            raise found
        return found if isinstance(found, list) else torch.from_numpy(found)

    def end(self, patience: float = PATIENCE) -> None:
        """Let the process end: at once if it has nothing to do, soon if it has, else by force."""
        self.ended = True
        self.line.close()
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _replaced(self) -> int | None:
        """Begin again with another process; gives the exit code of the last one."""
        self.process.join(PATIENCE)
        code: int | None = self.process.exitcode
        if not self.ended:
            self.line.close()
            self._begin("spawn", self.folder)  # a process that has threads by now must not be forked
        return code

    def _begin(self, method: str, model: hub.Model | Path) -> None:
        context: Any = multiprocessing.get_context(method)
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=compute, args=(theirs, self.line, model), name="nse-engine")
        self.process.start()
        theirs.close()


def separate(loaded: hub.Model) -> bool:
    """Whether to compute in processes: on a CPU, where they can be forked."""
    return sys.platform == "linux" and next(loaded.model.parameters()).device.type == "cpu"


def compute(line: Connection, other: Connection, model: hub.Model | Path) -> None:
    """Be such a process: compute what is asked for, until the other end of the line is closed."""
    other.close()  # or there would be no end as long as this process lives
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # which are for the server, and sent to its whole group
    torch.set_num_threads(1)
    loaded = model if isinstance(model, hub.Model) else as_it_answers(model)
    with suppress(EOFError, OSError):
        while True:
            what, rows, beam, batch = line.recv()
            line.send(outcome(loaded, Asked(what, rows, list, beam), batch))


def outcome(loaded: hub.Model, asked: Asked, batch: int) -> Any:
    """What was computed, or what went wrong, as it travels."""
    try:
        found = computed(loaded, asked, batch)
        return found if isinstance(found, list) else found.numpy()
    except NSEError as error:
        return error
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        return error


def as_it_answers(folder: Path) -> hub.Model:
    """A model from its folder."""
    from nse.loaded import load

    return load(folder).quick
