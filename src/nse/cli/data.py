"""Commands of `nse data`: status, fetch and prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from nse.cli import options
from nse.cli.output import print_json, print_result, print_table
from nse.errors import DataError, explain_errors
from nse.files import check_writable

app = Typer(help="List, download and prepare published data.", no_args_is_help=True)


@app.command()
def status(data: options.DataFolder = None, as_json: options.Json = False) -> None:
    """List data sets and word vectors, and how to get the missing ones."""
    from rich.console import Console

    from nse.data.sources import choose_data_folder
    from nse.data.status import describe_status
    from nse.data.status import report_status as look

    report = look(choose_data_folder(data), "nse data fetch")
    if as_json:
        print_json(report)
        return
    if not report["exists"]:
        missing = f"There is no data folder {report['folder']}: choose another with --data or NSE_DATA."
        Console(highlight=False).print(missing, markup=False)
    print_table(("data", f"in {report['folder']}"), describe_status(report))


@app.command()
def fetch(
    name: Annotated[str, Argument(help="Name of a data set or of word vectors in `nse data status`.")],
    data: options.DataFolder = None,
    mirror: Annotated[
        str | None,
        Option(
            "--from",
            metavar="ADDRESS",
            help="Download from this mirror: address of the file, or of its folder with / at the end.",
        ),
    ] = None,
) -> None:
    """Download a data set or word vectors; continue an interrupted download."""
    from nse.data.catalogue import get_downloads
    from nse.data.fetch import fetch_file as get
    from nse.data.sources import choose_data_folder, show_progress

    for download in get_downloads(name):
        with show_progress(download.file) as progress:
            get(download, choose_data_folder(data), mirror, progress=progress)


@app.command()
def prepare(
    name: Annotated[str, Argument(help="Name of a data set in `nse data status`.")],
    vectors: Annotated[
        str | None, Option(help="Word vectors, such as glove.840B.300d; A+B concatenates two sets.")
    ] = None,
    data: options.DataFolder = None,
    out: Annotated[
        Path | None, Option(help="Folder of the file; by default the cache: NSE_CACHE, or ~/.cache/nse.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Prepare a data set with word vectors as one file for training."""
    from nse.data.cache import choose_cache_folder, save_prepared
    from nse.data.catalogue import get_data_set
    from nse.data.prepare import list_sources, make_file_name
    from nse.data.prepare import prepare as make
    from nse.data.sources import find_data_folder
    from nse.data.status import describe_prepared

    folder = find_data_folder(data)
    file = (out or choose_cache_folder()) / make_file_name(name, vectors)
    list_sources(get_data_set(name), vectors, folder)  # raises an error if something is missing
    with explain_errors(f"{file}: cannot be written", DataError, "; choose another folder with --out"):
        check_writable(file)
        prepared = make(name, vectors, folder)
        save_prepared(prepared, file)
    size, words = file.stat().st_size, len(prepared.vocabulary)
    report = {"file": str(file), "bytes": size, "fingerprint": prepared.fingerprint}
    report |= {"words": words, "information": prepared.information}
    line = f"{file}: {size:,} bytes, {words:,} words"
    print_result(report, as_json, line, *describe_prepared(prepared.information))
