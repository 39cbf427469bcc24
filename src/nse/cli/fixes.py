"""Options and commands that the command line adds to an error, so that users know what to type."""

from nse.errors import NSEError

FIXES = {
    "columns": "name them with --columns {}",
    "continue": "type `nse train --resume --out {}` to continue the run with its own recipe",
    "data": "or with --data, or get data into ./data with `nse data fetch snli`",
    "dev": "give --dev FILE",
    "fetch": "type `nse data fetch {} --data {}`",
    "input": "give texts or --file, or leave out <&-",
    "mirror": "try a mirror with --from ADDRESS",
    "on": "name a file with --on FILE",
    "prepare": "type `nse data prepare {} --out {}`",
    "prepare_vectors": "type `nse data prepare {} --vectors {} --out {}`",
    "qrels": "type `nse evaluate --scores {} --qrels FILE`",
    "recipes": "`nse recipes` lists them",
    "resume": "--resume continues the run",
    "scores": "type `nse evaluate --scores {}` to add them",
    "status": "`nse data status` shows which files are looked for",
    "test": "name one with --test FILE",
    "train": "name it with --train FILE",
    "vectors": "`nse data fetch {}` gets published ones, `nse data status` lists all",
}
"""By the names that `NSEError.fix` holds, each with places for its values."""


def describe_error(error: NSEError) -> str:
    """Return the message of an error, and what to type."""
    if not error.fix:
        return str(error)
    name, *values = error.fix
    return f"{error}; {FIXES[name].format(*values)}"
