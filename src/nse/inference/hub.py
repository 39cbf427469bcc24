"""Fetch a model from the Hugging Face Hub: `hf:owner/name`, or `hf:owner/name@commit` to pin a commit."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nse.errors import ModelError

PREFIX = "hf:"  # no path begins so: nothing is fetched by accident
NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?", re.ASCII)


def fetch_model(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Fetch the files of a model, all of one commit; return its folder in huggingface_hub's cache.

    No other files are fetched: neither pickles nor code reach the disk.
    """
    match = NAME.fullmatch(name)
    if not match or ".." in name:
        raise ModelError(f"{name}: expected hf:owner/name or hf:owner/name@commit")
    repository, commit = match[1], match[2] or revision
    if revision not in (None, commit):
        raise ModelError(f"{name}: two revisions were given, {commit} and {revision}; give one")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=commit, allow_patterns=list(files)))
    except LocalEntryNotFoundError:
        why = "is not in the cache, and the Hub cannot be reached; check the name and the connection"
        raise ModelError(f"{name}: {why}, or give a model folder") from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: cannot be fetched from the Hub: {reason}") from None
