"""Typed errors for people: each message says what was wrong, where, and what to do."""


class NSEError(Exception):
    """Base of every error raised on purpose; the command line shows its message alone and exits with 2."""


class InputError(NSEError, ValueError):
    """An argument of a function or module does not fit: its name, what came and what was expected."""


class ConfigError(NSEError, ValueError):
    """A recipe or a `--set` does not fit: every mistake with its dotted key."""


class BackendError(NSEError, RuntimeError):
    """A backend was asked for that does not exist or cannot run here."""


class RunError(NSEError):
    """A run cannot start or go on, for example because its folder already holds one."""


class ModelError(NSEError):
    """A model folder cannot be used: which file, what is wrong with it, and what to do."""


class DataError(NSEError):
    """Data is missing or broken: which file, which line, and the command that gets it."""


class FieldsError(ValueError):
    """Fields of a configuration cannot be as they are.

    Args:
        mistakes: What is wrong with each, by its name.
    """

    def __init__(self, mistakes: dict[str, str]):
        self.mistakes = mistakes
        super().__init__("\n".join(f"{name} {text}" for name, text in mistakes.items()))
