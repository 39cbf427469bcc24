"""The commands of `nse data`: what is there, fetch it, prepare it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from nse.cli import options
from nse.cli.output import print_json, print_result, print_table
from nse.errors import DataError, explain_errors
from nse.files import check_writable

app = Typer(help="Published data: what is there, fetch it, prepare it.", no_args_is_help=True)


@app.command()
def status(data: options.Data = None, as_json: options.Json = False) -> None:
    """Show which data sets and vectors are there, how much of them, and how to get the others."""
    from rich.console import Console

    from nse.data.sources import choose_data_folder
    from nse.data.status import describe_status
    from nse.data.status import report_status as look

    report = look(choose_data_folder(data), "nse data fetch")
    if as_json:
        print_json(report)
        return
    if not report["exists"]:
        missing = f"There is no data folder {report['folder']}: name yours with --data or NSE_DATA."
        Console(highlight=False).print(missing, markup=False)
    print_table(("data", f"in {report['folder']}"), describe_status(report))


@app.command()
def fetch(
    name: Annotated[str, Argument(help="A data set or vectors, as `nse data status` lists them.")],
    data: options.Data = None,
    mirror: Annotated[
        str | None,
        Option(
            "--from",
            metavar="ADDRESS",
            help="Get it from here instead: a file, or a folder with / at its end.",
        ),
    ] = None,
) -> None:
    """Get a data set or vectors from their public address; go on where an earlier try broke off."""
    from nse.data.catalogue import get_downloads
    from nse.data.fetch import fetch_file as get
    from nse.data.sources import choose_data_folder, show_progress

    for download in get_downloads(name):
        with show_progress(download.file) as progress:
            get(download, choose_data_folder(data), mirror, progress=progress)


@app.command()
def prepare(
    name: Annotated[str, Argument(help="A data set, as `nse data status` lists them.")],
    vectors: Annotated[
        str | None, Option(help="Word vectors, such as glove.840B.300d; A+B joins two sets.")
    ] = None,
    data: options.Data = None,
    out: Annotated[
        Path | None, Option(help="Folder for the file; the cache (NSE_CACHE, else ~/.cache/nse) by default.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Turn a data set and word vectors into one file of ids, which training reads."""
    from nse.data.cache import choose_cache_folder, save_prepared
    from nse.data.catalogue import get_data_set
    from nse.data.prepare import list_sources, make_file_name
    from nse.data.prepare import prepare as make
    from nse.data.sources import find_data_folder
    from nse.data.status import describe_prepared

    folder = find_data_folder(data)
    file = (out or choose_cache_folder()) / make_file_name(name, vectors)
    list_sources(get_data_set(name), vectors, folder)  # what is missing is told before anything is written
    with explain_errors(f"{file}: cannot be written", DataError, "; choose another folder with --out"):
        check_writable(file)
        prepared = make(name, vectors, folder)
        save_prepared(prepared, file)
    size, words = file.stat().st_size, len(prepared.vocabulary)
    report = {"file": str(file), "bytes": size, "fingerprint": prepared.fingerprint}
    report |= {"words": words, "information": prepared.information}
    line = f"{file}: {size:,} bytes, {words:,} words"
    print_result(report, as_json, line, *describe_prepared(prepared.information))
