"""Models on the Hugging Face Hub: `hf:owner/name`, or `hf:owner/name@commit` to pin one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nse.errors import ModelError

PREFIX = "hf:"
"""How the name of such a model begins; a path never does, so that nothing is fetched by accident."""

NAME = re.compile(
    r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII
)


def fetch_model(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Fetch a model of the Hub; returns its folder in the cache that huggingface_hub keeps.

    All files are of one commit, which is the folder's name. Only the files of a model folder are fetched, so
    neither pickles nor code ever reach the disk.

    Args:
        name: `hf:owner/name` or `hf:owner/name@revision`.
        files: The names of the files that a model folder can have.
        revision: A commit, or a tag or branch, which may be another model tomorrow; `main` by default.

    Raises:
        ModelError: There is no such model, or it cannot be reached.
    """
    match = NAME.fullmatch(name)
    if not match or ".." in name:
        raise ModelError(f"{name}: expected hf:owner/name or hf:owner/name@commit")
    commit = match["revision"] or revision
    if revision not in (None, commit):
        raise ModelError(f"{name}: two revisions are asked for, {commit} and {revision}; give one")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # which model is used is nobody's business
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(match["repository"], revision=commit, allow_patterns=list(files)))
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{name}: is not in the cache, and the Hub cannot be reached; check the name and the connection, "
            "or give the folder of a model"
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: cannot be fetched from the Hub: {reason}") from None
