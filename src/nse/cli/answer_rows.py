"""What a model answers to some rows: for each its answer, or why there is none, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nse.cli.rows import Row
from nse.cli.writing import Answer
from nse.data.records import Problem
from nse.errors import InputError
from nse.inference import folder as hub
from nse.inference import requests as asking
from nse.inference.batches import answered, computed
from nse.inference.requests import Asked

Read = Row | Problem


class Group(NamedTuple):
    """A question and its candidates."""

    question: str
    rows: list[Read]


def labels(loaded: hub.Model, rows: Sequence[Read], strict: bool, batch: int) -> list[Answer | Problem]:
    """The labels of rows; see `nse.inference.api.predict`."""

    def ask(some: Sequence[Row]) -> Asked:
        texts = [row.texts if len(row.texts) > 1 else row.texts[0] for row in some]
        return asking.labels(loaded, texts, strict, numbers(some))  # type: ignore[arg-type]

    good, problems, asked = sifted(rows, ask)
    return in_order(rows, good, answered(loaded, asked, batch) if asked else [], problems)


def vectors(loaded: hub.Model, rows: Sequence[Read], strict: bool, batch: int) -> list[Answer | Problem]:
    """The vectors of rows; see `nse.inference.api.encode`."""

    def ask(some: Sequence[Row]) -> Asked:
        return asking.vectors(loaded, [row.texts[0] for row in some], strict, numbers(some))

    good, problems, asked = sifted(rows, ask)
    found, told = answered(loaded, asked, batch) if asked else ([], [])
    answers = [
        {"number": row.number, "text": row.texts[0], "vector": vector, **how_read}
        for row, vector, how_read in zip(good, found, told, strict=True)
    ]
    return in_order(rows, good, answers, problems)


def translations(
    loaded: hub.Model, rows: Sequence[Read], strict: bool, batch: int, beam: int | None, people: bool
) -> list[Answer | Problem]:
    """The translations of rows, as people write them or as words; see `nse.inference.api.translate`."""

    def ask(some: Sequence[Row]) -> Asked:
        return asking.translations(loaded, [row.texts[0] for row in some], beam, strict, numbers(some))

    good, problems, asked = sifted(rows, ask)
    answers = answered(loaded, asked, batch) if asked else []
    if not people:
        answers = [{**answer, "translation": " ".join(answer["words"])} for answer in answers]
    return in_order(rows, good, answers, problems)


def rankings(
    loaded: hub.Model, groups: Sequence[Group], strict: bool, batch: int, top: int | None
) -> list[Answer | Problem]:
    """Of each question its candidates, the best first; see `api.rank`. All are computed together."""
    sifts = []
    for group in groups:

        def ask(some: Sequence[Row], question: str = group.question) -> Asked:
            texts = [row.texts[-1] for row in some]
            return asking.ranking(loaded, question, texts, strict, numbers(some))

        sifts.append(sifted(group.rows, ask))
    together = Asked("scores", [row for _, _, asked in sifts if asked for row in asked.rows], list)
    scores, first = computed(loaded, together, batch), 0
    found: list[Answer | Problem] = []
    for good, problems, asked in sifts:
        found += dict.fromkeys(problems.values())  # of one line, the same is told once
        told = asked.tell(scores[first : first + len(good)]) if asked else []
        first += len(good)
        by_number = dict(zip(numbers(good), good, strict=True))
        found += [candidate(by_number[answer["number"]], answer) for answer in told[:top]]
    return found


def candidate(row: Row, answer: Answer) -> Answer:
    """What is told of a candidate: its question as well, where the file asks it, and where it stood."""
    about: Answer = {"question": row.texts[0]} if len(row.texts) > 1 else {}
    for name, value in answer.items():
        about[name] = row.number if name == "number" else value
        if name == "number":
            about |= {"id": row.id} if row.id is not None else {}
            about |= {"candidate": row.place} if row.place else {}
    return about


def grouped(rows: Iterable[Read]) -> Iterator[Group]:
    """Rows with the same question that follow each other, and those of one line."""
    group, key = None, None
    for row in rows:
        if isinstance(row, Problem):
            group = group or Group("", [])
            group.rows.append(row)
            continue
        own = (row.texts[0], row.number if row.place else 0)
        if group is None or (key is not None and own != key):
            if group is not None:
                yield group
            group = Group(row.texts[0], [])
        elif key is None:  # only problems so far
            group = Group(row.texts[0], group.rows)
        key = own
        group.rows.append(row)
    if group is not None:
        yield group


def numbers(rows: Sequence[Row]) -> list[int]:
    """What rows are called in errors: candidates by their place in the line, others by their line."""
    return [row.place or row.number for row in rows]


def sifted(
    rows: Sequence[Read], ask: Callable[[Sequence[Row]], Asked]
) -> tuple[list[Row], dict[int, Problem], Asked | None]:
    """The rows that can be asked, why others cannot, by their place, and the question, if there is one.

    All are read at once; only if that fails, each by itself to see which it was.
    """
    problems = {at: row for at, row in enumerate(rows) if isinstance(row, Problem)}
    good = {at: row for at, row in enumerate(rows) if isinstance(row, Row)}
    try:
        return list(good.values()), problems, ask(list(good.values())) if good else None
    except InputError:
        for at, row in list(good.items()):
            try:
                ask([row])
            except InputError as error:
                problems[at] = Problem(row.number, str(error))
                del good[at]
    return list(good.values()), problems, ask(list(good.values())) if good else None


def in_order(
    rows: Sequence[Read], good: Sequence[Row], answers: Sequence[Answer], problems: dict[int, Problem]
) -> list[Answer | Problem]:
    """Answers and problems in the order of the rows, and what the file calls them."""
    told = iter(zip(good, answers, strict=True))
    return [problems[at] if at in problems else named(*next(told)) for at in range(len(rows))]


def named(row: Row, answer: Answer) -> Answer:
    """An answer with what the file calls its row, after the number."""
    if row.id is None:
        return answer
    number = answer["number"]
    return {"number": number, "id": row.id, **answer}
