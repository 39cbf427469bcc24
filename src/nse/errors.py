"""Typed errors for people: each message says what was wrong, where, and what to do."""

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
    """An argument of a function or module does not fit: its name, what came and what was expected."""


class ConfigError(NSEError, ValueError):
    """A recipe or an override of its values is wrong; every mistake is listed with its key."""


class BackendError(NSEError, RuntimeError):
    """A backend was asked for that does not exist or cannot run here."""


class RunError(NSEError):
    """A run cannot start or go on, for example because its folder already holds one."""


class ModelError(NSEError):
    """A model folder cannot be used: which file, what is wrong with it, and what to do."""


class DataError(NSEError):
    """Data is missing or broken: which file, which line, and the command that gets it."""


class FieldsError(ValueError):
    """Fields of a configuration cannot be as they are: `mistakes` says why, by their names."""

    def __init__(self, mistakes: dict[str, str]):
        self.mistakes = mistakes
        super().__init__("\n".join(f"{name} {text}" for name, text in mistakes.items()))


@contextmanager
def explain_errors(what: str, error: type[NSEError] = RunError, advice: str = "") -> Iterator[None]:
    """Raise an `OSError` of the block as an error for people: what cannot be done, why, and what to do."""
    try:
        yield
    except OSError as reason:
        raise error(f"{what}: {reason.strerror or reason}{advice}") from None


def suggest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name that is spelled most like this one, for "did you mean"; "" where none is."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def shorten(value: object, most: int = 100) -> str:
    """Write a value so that it fits a line of a message: cut, and with escapes for what cannot be printed."""
    text = escape(str(value)[:most])
    return text if len(str(value)) <= most else f"{text}..."


def escape(text: str) -> str:
    """Write what cannot be printed as Python's escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
