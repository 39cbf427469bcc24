"""Models on the Hugging Face Hub: `hf:owner/name`, or `hf:owner/name@commit` to pin one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nse.errors import ModelError

PREFIX = "hf:"  # a path never begins so, so that nothing is fetched by accident
NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?", re.ASCII)


def fetch_model(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Fetch a model of the Hub; returns its folder in the cache that huggingface_hub keeps.

    Only files of these names are fetched, all of one commit: neither pickles nor code ever reach the disk.
    """
    match = NAME.fullmatch(name)
    if not match or ".." in name:
        raise ModelError(f"{name}: expected hf:owner/name or hf:owner/name@commit")
    repository, commit = match[1], match[2] or revision
    if revision not in (None, commit):
        raise ModelError(f"{name}: two revisions are asked for, {commit} and {revision}; give one")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # which model is used is nobody's business
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=commit, allow_patterns=list(files)))
    except LocalEntryNotFoundError:
        why = "is not in the cache, and the Hub cannot be reached; check the name and the connection"
        raise ModelError(f"{name}: {why}, or give the folder of a model") from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: cannot be fetched from the Hub: {reason}") from None
