"""What is in a data folder, and how to get what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nse.data.cache import load
from nse.data.catalogue import DATA, VECTORS, DataSet
from nse.data.prepare import prepared_files
from nse.errors import DataError
from nse.text.published import Source, lines
from nse.text.vectors import available, open_array, vector_sources


def status(folder: Path) -> dict[str, Any]:
    """Every known data set and vectors: whether it is there, where, and how much of it."""
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "data": [_data(name, entry, folder) for name, entry in DATA.items()],
        "vectors": [_vectors(name, folder) for name in dict.fromkeys([*VECTORS, *available(folder)])],
        "prepared": [_prepared(file) for name in DATA for file in prepared_files(name, folder)],
    }


def _data(name: str, entry: DataSet, folder: Path) -> dict[str, Any]:
    row = _row(name, entry.about)
    try:
        sources = entry.sources(folder)
    except DataError as error:
        return row | {"get": f"nse data fetch {name}" if entry.downloads else str(error)}
    row |= _place(next(iter(sources.values())))
    try:
        found = entry.count(folder) if entry.count else _kept(entry, folder)
    except DataError as error:
        return row | {"problem": str(error)}
    counts = {split: {"found": n, "published": entry.published[split]} for split, n in found.items()}
    return row | {"present": True, "counts": counts}


def _kept(entry: DataSet, folder: Path) -> dict[str, int]:
    return {split: len(each.labels) for split, each in entry.read(folder).items()}


def _vectors(name: str, folder: Path) -> dict[str, Any]:
    known = VECTORS.get(name)
    row = _row(name, known.about if known else "")
    try:
        source = vector_sources(folder, name)[0]
    except DataError:
        return row | {"get": f"nse data fetch {name}" if known and known.downloads else None}
    row |= _place(source)
    try:
        count, dimension = _shape(source)
    except DataError as error:
        return row | {"problem": str(error)}
    published = known.published if known else None
    counts = {"words": {"found": count, "published": published}}
    return row | {"present": True, "dimension": dimension, "counts": counts}


def _shape(source: Source) -> tuple[int | None, int]:
    """How many vectors of how many numbers; counting those of a text would mean reading all of it."""
    if source.path.suffix == ".npy":
        count, dimension = open_array(source).shape
        return int(count), int(dimension)
    for _, line in lines(source):
        return None, line.rstrip().count(b" ")
    raise DataError(f"{source}: is empty")


def _prepared(file: Path) -> dict[str, Any]:
    try:
        prepared = load(file)
    except DataError as error:
        return {"where": str(file), "problem": str(error)}
    rows = prepared.information["rows"]
    counts = {split: {"found": each["kept"], "published": each["published"]} for split, each in rows.items()}
    vectors = prepared.information["vectors"]
    return {"where": str(file), "name": prepared.name, "vectors": vectors, "counts": counts, "problem": None}


def _row(name: str, about: str) -> dict[str, Any]:
    return {
        "name": name,
        "about": about,
        "present": False,
        "where": None,
        "form": None,
        "counts": {},
        "problem": None,
        "get": None,
    }


def _place(source: Source) -> dict[str, Any]:
    place = source.path if source.member or source.path.suffix == ".npy" else source.path.parent
    return {"where": str(place), "form": source.form}


def told(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and state of everything in a report, for a table."""
    for row in [*report["data"], *report["vectors"]]:
        if row["problem"]:
            yield row["name"], row["problem"]
        elif row["present"]:
            dimension = f", {row['dimension']} numbers each" if "dimension" in row else ""
            yield row["name"], f"{_counted(row['counts'])}{dimension}; {row['form']} in {row['where']}"
        else:
            yield row["name"], f"missing; {row['get']}" if row["get"] else f"missing; {row['about']}"
    for row in report["prepared"]:
        yield (
            Path(row["where"]).name,
            row["problem"] or f"prepared, {_counted(row['counts'])}; {row['where']}",
        )


def _counted(counts: dict[str, dict[str, int | None]]) -> str:
    return ", ".join(_share(name, **count) for name, count in counts.items())


def _share(name: str, found: int | None, published: int | None) -> str:
    if found is None:
        return f"{name} not counted"
    if published is None or found == published:
        return f"{name} {found:,}"
    if found > published:  # another form of it than the one that was counted
        return f"{name} {found:,} (published {published:,})"
    return f"{name} {found:,} of {published:,} ({found / published:.0%})"
