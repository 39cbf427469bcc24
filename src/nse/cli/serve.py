"""Commands that make a model available to other programs: serve and export."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from nse.cli import options
from nse.cli.output import print_line, print_result, warn
from nse.errors import InputError

PACKAGES = ("starlette", "pydantic", "uvicorn", "httptools", "prometheus_client")


def serve(
    model: options.ModelName,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0 for any free port.", min=0, max=65535)] = 8000,
    max_batch: Annotated[int, Option(help="Batch size.")] = 64,
    max_wait_ms: Annotated[
        float, Option(help="Longest time in milliseconds that a request waits for its batch to fill.")
    ] = 5.0,
    max_queue: Annotated[int, Option(help="Queue length; further requests are answered with 429.")] = 256,
    max_chars: Annotated[
        int, Option(help="Characters per text; a longer text is answered with 413.")
    ] = 10_000,
    max_texts: Annotated[int, Option(help="Texts per request; more are answered with 413.")] = 256,
    timeout: Annotated[
        float, Option(help="Timeout of a request in seconds, for receiving it and for answering it.")
    ] = 30.0,
    workers: Annotated[
        int | None,
        Option(
            help="Worker processes, by default one per core; on a GPU threads, by default one.",
            min=1,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, Option(help="Require an API key from this file, which has one key per line.")
    ] = None,
    access_log: Annotated[
        bool, Option("--access-log/--no-access-log", help="Log each request as a line of JSON.")
    ] = True,
    log_texts: Annotated[bool, Option("--log-texts", help="Include the texts in the access log.")] = False,
    device: options.DeviceOption = "auto",
    precision: options.Precision = "float32",
) -> None:
    """Serve a model over HTTP: an API under /v1, and a web page."""
    if any(find_spec(name) is None for name in PACKAGES):
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
        warn(f"other users can read or change {api_key_file}; type: chmod 600 {api_key_file}")
    loaded = load(model, device, precision=precision)

    def announce(address: str, open_to_all: bool) -> None:
        if open_to_all and not settings.keys:
            warn(f"everybody who can reach {address} can use the model; --api-key-file restricts it")
        print_line(f"nse: {model} is served at {address} (Ctrl-C stops)")

    raise Exit(server.serve(loaded, settings, announce))


def export(
    model: options.ModelName,
    onnx: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="ONNX file to write; the vocabulary is written beside it.",
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Export a classifier or a ranker as an ONNX file, and compare its scores with PyTorch's."""
    from nse.inference.onnx import to_onnx  # imports torch

    report = to_onnx(model, onnx)
    scores = f"scores within {report['difference']:.1e} of PyTorch's"
    print_result(report, as_json, f"{report['file']}: {report['bytes']:,} bytes, {scores}")
