"""The command that serves a model: serve."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from nse.cli.ask import Device, Where
from nse.cli.printing import put
from nse.errors import InputError

NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")


def serve(
    model: Annotated[str, typer.Argument(help="A shipped model's name, a run or a model folder.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    max_batch: Annotated[int, typer.Option(help="Texts computed at a time.")] = 64,
    max_wait_ms: Annotated[
        float,
        typer.Option(help="Milliseconds that a request waits at most for others to be computed with."),
    ] = 5.0,
    max_queue: Annotated[
        int, typer.Option(help="Requests that may wait for the model; one more is answered 429.")
    ] = 256,
    max_chars: Annotated[
        int, typer.Option(help="Characters of a text; a longer one is answered 413.")
    ] = 10_000,
    max_texts: Annotated[int, typer.Option(help="Texts of a request; more are answered 413.")] = 256,
    timeout: Annotated[
        float, typer.Option(help="Seconds within which a request must arrive, and be answered.")
    ] = 30.0,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that compute, on a GPU threads; by default one for each core, or one on a GPU.",
            min=1,
            show_default=False,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="Answer only who sends a key of this file, one on each line.", show_default=False),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="Log requests, a line of JSON each.")
    ] = True,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts as well.")] = False,
    device: Where = Device.auto,
) -> None:
    """Serve a model: questions under /v1, and a page to explore what its memory does."""
    if any(find_spec(name) is None for name in NEEDED):
        needs = "needs fastapi, uvicorn, httptools and prometheus-client"
        raise InputError(f"serve: {needs}: pip install 'neural-semantic-encoders[serve]'")
    if log_texts and not access_log:
        raise InputError("serve: --log-texts puts texts into the access log: leave out --no-access-log")
    from nse.inference.model import load
    from nse.serve.keys import is_readable_by_others, read_keys
    from nse.serve.limits import Limits
    from nse.serve.server import serve as run

    limits = Limits(max_batch, max_wait_ms, max_queue, max_chars, max_texts, timeout)
    keys = read_keys(api_key_file) if api_key_file else None
    if api_key_file and is_readable_by_others(api_key_file):
        print(
            f"nse: others on this machine can read or change {api_key_file}: chmod 600 {api_key_file}",
            file=sys.stderr,
            flush=True,
        )
    loaded = load(model, device.value)

    def ready(address: str, open_to_all: bool) -> None:
        if open_to_all and not keys:
            print(
                f"nse: everybody who can reach {address} may ask; see --api-key-file",
                file=sys.stderr,
                flush=True,
            )
        put(f"nse: {model} is served at {address} (Ctrl-C stops)")

    code = run(loaded, host, port, ready, limits, keys, workers, access_log, log_texts)
    raise typer.Exit(code)
