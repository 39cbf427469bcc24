"""The commands that hand a model on: serve, and export for other programs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from nse.cli import options
from nse.cli.output import print_line, print_result, warn
from nse.errors import InputError

NEEDED = ("starlette", "pydantic", "uvicorn", "httptools", "prometheus_client")


def serve(
    model: options.Model,
    host: Annotated[str, Option(help="Address to listen at; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8000,
    max_batch: Annotated[int, Option(help="Texts computed at a time.")] = 64,
    max_wait_ms: Annotated[
        float, Option(help="Milliseconds that a request waits at most for others to be computed with.")
    ] = 5.0,
    max_queue: Annotated[
        int, Option(help="Requests that may wait for the model; one more is answered 429.")
    ] = 256,
    max_chars: Annotated[int, Option(help="Characters of a text; a longer one is answered 413.")] = 10_000,
    max_texts: Annotated[int, Option(help="Texts of a request; more are answered 413.")] = 256,
    timeout: Annotated[
        float, Option(help="Seconds within which a request must arrive, and be answered.")
    ] = 30.0,
    workers: Annotated[
        int | None,
        Option(
            help="Processes that compute, on a GPU threads; by default one for each core, or one on a GPU.",
            min=1,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, Option(help="Answer only who sends a key of this file, one on each line.")
    ] = None,
    access_log: Annotated[
        bool, Option("--access-log/--no-access-log", help="Log requests, a line of JSON each.")
    ] = True,
    log_texts: Annotated[bool, Option("--log-texts", help="Log the texts as well.")] = False,
    device: options.Where = "auto",
) -> None:
    """Serve a model: questions under /v1, and a page to explore what its memory does."""
    if any(find_spec(name) is None for name in NEEDED):
        needs = "needs starlette, pydantic, uvicorn, httptools and prometheus-client"
        raise InputError(f"serve: {needs}: pip install 'neural-semantic-encoders[serve]'")
    from nse import load
    from nse.serve import server
    from nse.serve.settings import Settings, is_open_to_others, read_keys

    settings = Settings(
        host=host,
        port=port,
        max_batch=max_batch,
        max_wait_ms=max_wait_ms,
        max_queue=max_queue,
        max_chars=max_chars,
        max_texts=max_texts,
        timeout=timeout,
        workers=workers,
        keys=read_keys(api_key_file) if api_key_file else None,
        access_log=access_log,
        log_texts=log_texts,
    )
    if api_key_file and is_open_to_others(api_key_file):
        warn(f"others on this machine can read or change {api_key_file}: chmod 600 {api_key_file}")
    loaded = load(model, device)

    def announce(address: str, open_to_all: bool) -> None:
        if open_to_all and not settings.keys:
            warn(f"everybody who can reach {address} may ask; see --api-key-file")
        print_line(f"nse: {model} is served at {address} (Ctrl-C stops)")

    raise Exit(server.serve(loaded, settings, announce))


def export(
    model: options.Model,
    onnx: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="Where to write the model for ONNX runtimes; its vocabulary goes beside it.",
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Write a classifier or a ranker as an ONNX file, checked to give the scores that it gives here."""
    from nse.inference.onnx import to_onnx  # imports torch

    report = to_onnx(model, onnx)
    scores = f"scores within {report['difference']:.1e} of PyTorch's"
    print_result(report, as_json, f"{report['file']}: {report['bytes']:,} bytes, {scores}")
