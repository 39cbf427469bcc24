"""Report which data a data folder holds, and how to get the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nse.data.cache import load_prepared
from nse.data.catalogue import DATA, VECTORS, DataSet, VectorSet
from nse.data.prepare import list_prepared_files
from nse.data.readers.word_vectors import find_vector_files, list_vectors, open_array
from nse.data.sources import DataFile, read_lines
from nse.errors import DataError
from nse.text.vectors import Coverage

Counts = dict[str, dict[str, int | None]]
"""Number found and number published, by split, or of words."""

Report = dict[str, Any]


def report_status(folder: Path, fetch_command: str) -> Report:
    """Report for every known data set and vectors whether, where and how completely they are there."""
    vectors = {name: VECTORS.get(name) for name in [*VECTORS, *list_vectors(folder)]}
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "data": [_report_entry(name, entry, folder, fetch_command) for name, entry in DATA.items()],
        "vectors": [_report_entry(name, entry, folder, fetch_command) for name, entry in vectors.items()],
        "prepared": [_report_prepared(file) for name in DATA for file in list_prepared_files(name, folder)],
    }


def _report_entry(name: str, entry: DataSet | VectorSet | None, folder: Path, fetch_command: str) -> Report:
    """Report on a data set or vectors; `entry` is None for vectors that are not in the catalogue."""
    row = {"name": name, "about": entry.about if entry else "", "present": False, "where": None, "form": None}
    row |= {"counts": {}, "problem": None, "get": None}
    try:
        if isinstance(entry, DataSet):
            source, *_ = entry.find_sources(folder).values()
        else:
            source, *_ = find_vector_files(folder, name)
    except DataError as error:
        by_hand = str(error) if isinstance(entry, DataSet) else None
        return row | {"get": f"{fetch_command} {name}" if entry and entry.downloads else by_hand}
    where = source.path if source.member or source.path.suffix == ".npy" else source.path.parent
    row |= {"where": str(where), "form": source.form}
    try:
        if not isinstance(entry, DataSet):
            return row | {"present": True} | _measure_vectors(source, entry)
        splits = (entry.count or entry.read)(folder).items()
    except DataError as error:
        return row | {"problem": str(error)}
    counts = {name: {"found": len(rows.labels), "published": entry.published[name]} for name, rows in splits}
    return row | {"present": True, "counts": counts}


def _measure_vectors(source: DataFile, entry: VectorSet | None) -> Report:
    """Return the dimension of vectors, and their number if that can be known without reading them."""
    count = None
    if source.path.suffix == ".npy":
        count, dimension = map(int, open_array(source).shape)
    else:
        first = next(read_lines(source), None)
        if first is None:
            raise DataError(f"{source}: is empty")
        dimension = first[1].rstrip().count(b" ")
    counts = {"words": {"found": count, "published": entry.published if entry else None}}
    return {"dimension": dimension, "counts": counts}


def _report_prepared(file: Path) -> Report:
    try:
        prepared = load_prepared(file)
    except DataError as error:
        return {"where": str(file), "problem": str(error)}
    rows = prepared.information["rows"]
    counts = {split: {"found": row["kept"], "published": row["published"]} for split, row in rows.items()}
    vectors = prepared.information["vectors"]
    return {"where": str(file), "name": prepared.name, "vectors": vectors, "counts": counts, "problem": None}


def describe_status(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the name and the state of each entry of a report, for a table."""
    for row in [*report["data"], *report["vectors"]]:
        state = row["problem"] or f"missing; {(row['get'] or row['about']).removeprefix(row['name'] + ': ')}"
        if row["present"]:
            dimension = f", {row['dimension']} numbers each" if "dimension" in row else ""
            state = f"{_join_counts(row['counts'])}{dimension}; {row['form']} in {row['where']}"
        yield row["name"], state
    for row in report["prepared"]:
        state = row["problem"] or f"prepared, {_join_counts(row['counts'])}; {row['where']}"
        yield Path(row["where"]).name, state


def describe_prepared(information: Report) -> Iterator[str]:
    """Yield lines with the counts and the coverage of a prepared data set."""
    for split, rows in information["rows"].items():
        dropped = rows["read"] - rows["kept"]
        yield f"{split}: {rows['kept']:,} of {rows['published']:,} rows, {dropped:,} left out"
    if information["vectors"]:
        yield str(Coverage(**information["coverage"]))


def _join_counts(counts: Counts) -> str:
    return ", ".join(_describe_count(name, **count) for name, count in counts.items())


def _describe_count(name: str, found: int | None, published: int | None) -> str:
    if found is None:
        return f"{name} not counted"
    if published is None or found == published:
        return f"{name} {found:,}"
    if found > published:  # another version of the data set
        return f"{name} {found:,} (published {published:,})"
    return f"{name} {found:,} of {published:,} ({found / published:.0%})"
