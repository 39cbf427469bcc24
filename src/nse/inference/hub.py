"""Models on the Hugging Face Hub: `hf:owner/name`, or `hf:owner/name@commit` to pin one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nse.errors import ModelError

PREFIX = "hf:"

NAME = re.compile(
    r"(?P<owner>[A-Za-z0-9][\w.-]*)/(?P<name>[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII
)


def is_remote(name: str | Path) -> bool:
    """Whether a model's name asks for the Hub; a path never does, so that nothing is fetched by accident."""
    return isinstance(name, str) and name.startswith(PREFIX)


def fetched(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """The folder of a model of the Hub, in the cache that huggingface_hub keeps.

    All files are of one commit, which is the folder's name. Only the files of a model folder are fetched, so
    neither pickles nor code ever reach the disk.

    Args:
        name: `hf:owner/name` or `hf:owner/name@revision`.
        files: The names of the files that a model folder can have.
        revision: A commit, or a tag or branch, which may be another model tomorrow; `main` by default.

    Raises:
        ModelError: There is no such model, or it cannot be reached.
    """
    found = NAME.fullmatch(name.removeprefix(PREFIX))
    if not found or ".." in name:
        raise ModelError(f"{name}: expected hf:owner/name or hf:owner/name@commit")
    if found["revision"] and revision and found["revision"] != revision:
        raise ModelError(f"{name}: two revisions are asked for, {found['revision']} and {revision}; give one")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # which model is used is nobody's business
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, commit = f"{found['owner']}/{found['name']}", found["revision"] or revision
    try:
        place = snapshot_download(repository, revision=commit, allow_patterns=list(files))
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{name}: is not in the cache, and the Hub cannot be reached; check the name and the connection, "
            "or give the folder of a model"
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: cannot be fetched from the Hub: {reason}") from None
    return Path(place)
