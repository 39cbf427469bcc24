"""What is in a data folder, and how to get what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nse.data.cache import load
from nse.data.catalogue import DATA, VECTORS, DataSet
from nse.data.prepare import prepared_files
from nse.data.readers.word_vectors import list_vectors, open_array, vector_sources
from nse.data.sources import DataFile, read_lines
from nse.errors import DataError
from nse.text.vectors import Coverage

Counts = dict[str, dict[str, int | None]]
"""Of each split, or of words: how many were found, and how many are published."""


def status(folder: Path) -> dict[str, Any]:
    """Look for every known data set and vectors: whether they are there, where, and how much of them."""
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "data": [_look_for_data(name, entry, folder) for name, entry in DATA.items()],
        "vectors": [
            _look_for_vectors(name, folder) for name in dict.fromkeys([*VECTORS, *list_vectors(folder)])
        ],
        "prepared": [_look_at_prepared(file) for name in DATA for file in prepared_files(name, folder)],
    }


def _look_for_data(name: str, entry: DataSet, folder: Path) -> dict[str, Any]:
    row = _make_row(name, entry.about)
    try:
        sources = entry.sources(folder)
    except DataError as error:
        return row | {"get": f"nse data fetch {name}" if entry.downloads else str(error)}
    row |= _describe_place(next(iter(sources.values())))
    try:
        rows = (entry.count or entry.read)(folder)
    except DataError as error:
        return row | {"problem": str(error)}
    counts = {
        split: {"found": len(each.labels), "published": entry.published[split]}
        for split, each in rows.items()
    }
    return row | {"present": True, "counts": counts}


def _look_for_vectors(name: str, folder: Path) -> dict[str, Any]:
    known = VECTORS.get(name)
    row = _make_row(name, known.about if known else "")
    try:
        source = vector_sources(folder, name)[0]
    except DataError:
        return row | {"get": f"nse data fetch {name}" if known and known.downloads else None}
    row |= _describe_place(source)
    try:
        count, dimension = _measure(source)
    except DataError as error:
        return row | {"problem": str(error)}
    counts = {"words": {"found": count, "published": known.published if known else None}}
    return row | {"present": True, "dimension": dimension, "counts": counts}


def _measure(source: DataFile) -> tuple[int | None, int]:
    """Tell how many vectors there are, of how many numbers; those of a text are not counted."""
    if source.path.suffix == ".npy":
        count, dimension = open_array(source).shape
        return int(count), int(dimension)
    for _, line in read_lines(source):
        return None, line.rstrip().count(b" ")
    raise DataError(f"{source}: is empty")


def _look_at_prepared(file: Path) -> dict[str, Any]:
    try:
        prepared = load(file)
    except DataError as error:
        return {"where": str(file), "problem": str(error)}
    rows = prepared.information["rows"]
    counts = {split: {"found": each["kept"], "published": each["published"]} for split, each in rows.items()}
    vectors = prepared.information["vectors"]
    return {"where": str(file), "name": prepared.name, "vectors": vectors, "counts": counts, "problem": None}


def _make_row(name: str, about: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("where", "form", "counts", "problem", "get"))
    return {"name": name, "about": about, "present": False, **nothing, "counts": {}}


def _describe_place(source: DataFile) -> dict[str, Any]:
    place = source.path if source.member or source.path.suffix == ".npy" else source.path.parent
    return {"where": str(place), "form": source.form}


def describe_status(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give name and state of everything in a report, for a table."""
    for row in [*report["data"], *report["vectors"]]:
        state = row["problem"] or f"missing; {row['get'] or row['about']}"
        if row["present"]:
            dimension = f", {row['dimension']} numbers each" if "dimension" in row else ""
            state = f"{_join_counts(row['counts'])}{dimension}; {row['form']} in {row['where']}"
        yield row["name"], state
    for row in report["prepared"]:
        state = row["problem"] or f"prepared, {_join_counts(row['counts'])}; {row['where']}"
        yield Path(row["where"]).name, state


def describe_prepared(information: dict[str, Any]) -> Iterator[str]:
    """Give counts and coverage of a prepared data set, in lines."""
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
    if found > published:  # another form of it than the one that was counted
        return f"{name} {found:,} (published {published:,})"
    return f"{name} {found:,} of {published:,} ({found / published:.0%})"
