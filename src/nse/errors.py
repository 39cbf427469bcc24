"""Typed errors; each message says what was wrong, where, and what to do."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class NSEError(Exception):
    """Base of the errors that nse raises on purpose; the command line prints it and exits with `code`.

    Args:
        message: What was wrong, where, and what to do.
        fix: A key of `nse.cli.fixes.FIXES` and its values: what the command line tells the user to type.
    """

    code = 2

    def __init__(self, message: str = "", fix: tuple[str, ...] = ()):
        super().__init__(message)
        self.fix = fix


class InputError(NSEError, ValueError):
    """An argument is wrong; the message begins with its name."""


class ConfigError(NSEError, ValueError):
    """A recipe or an override of its values is wrong; every mistake is listed with its key."""


class BackendError(NSEError, RuntimeError):
    """A backend does not exist or cannot run here."""


class RunError(NSEError):
    """A run cannot start or continue."""


class ModelError(NSEError):
    """A model folder cannot be used."""


class DataError(NSEError):
    """Data is missing or broken; the message names the file and the line."""


class FieldsError(ValueError):
    """Fields of a configuration are wrong: `mistakes` has a reason for each name."""

    def __init__(self, mistakes: dict[str, str]):
        self.mistakes = mistakes
        super().__init__("\n".join(f"{name} {text}" for name, text in mistakes.items()))


@contextmanager
def explain_errors(what: str, error: type[NSEError] = RunError, advice: str = "") -> Iterator[None]:
    """Raise an `error` for an `OSError` in the block: what failed, the reason, and advice."""
    try:
        yield
    except OSError as os_error:
        raise error(f"{what}: {os_error.strerror or os_error}{advice}") from None


def suggest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name that is most similar, for "did you mean", or ""."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def shorten(value: object, max_length: int = 100) -> str:
    """Truncate a value for a message, and escape characters that are not printable."""
    text = escape(str(value)[:max_length])
    return text if len(str(value)) <= max_length else f"{text}..."


def escape(text: str) -> str:
    """Escape characters that are not printable, as Python does."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
