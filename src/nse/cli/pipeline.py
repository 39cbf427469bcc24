"""Rows in, answers out: answers are written as they come, and problems are met in their place."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nse.cli.options import Bad
from nse.cli.output import Answer, Describe, Write, format_lines, open_writer, warn
from nse.cli.rows import (
    CHUNK,
    Columns,
    Input,
    Read,
    Row,
    parse_keys,
    read_rows,
    split_chunks,
    stop_at_problem,
)
from nse.console import make_bar
from nse.data.records import BadLine, LineSource, guess_format
from nse.errors import DataError, InputError, NSEError

if TYPE_CHECKING:
    from rich.progress import Progress

    from nse.inference.inputs import Request, Verb
    from nse.inference.model import Model

Groups = Sequence[Sequence[Read]]  # the candidates of each question
Result = Answer | BadLine
Ask = Callable[[Sequence[Row]], "Request"]


@contextmanager
def open_run(
    given: Input, bad: Bad, out: Path | None, endings: Sequence[str], as_json: bool, describe: Describe
) -> Iterator[Run]:
    """Open what is read and what is written, before a model is loaded; at the end sum up."""
    if out and as_json:
        raise InputError(f"{given.command}: --json prints and --out writes a file: leave one out")
    opened = nullcontext() if given.texts else LineSource(given.file)
    with opened as source, open_writer(out, endings, format_lines if as_json else describe) as write:
        run = Run(given, bad, out, source, write)
        yield run
    run.sum_up()


class Run:
    """Rows that come and answers that go: they are written as they come, and problems met in their place."""

    def __init__(self, given: Input, bad: Bad, out: Path | None, source: LineSource | None, write: Write):
        self.given, self.bad, self.out, self.source, self.write = given, bad, out, source, write
        self.typed: list[Read] = [Row(number, (text,)) for number, text in enumerate(given.texts, start=1)]
        self.answers = self.cut = self.skipped = 0
        self.tells_cuts = False
        self.bar: Progress | None = None

    def rows(self, columns: Columns) -> Iterator[Read]:
        """Read the rows, whose columns may have other names in a file."""
        given = self.given
        if self.source is None:
            return iter(self.typed)
        columns = parse_keys(given.columns, columns._replace(id=given.id))
        rows = read_rows(self.source, given.form or guess_format(given.file), columns)
        return stop_at_problem(rows) if self.bad == "stop" else rows

    def chunks(self, columns: Columns, few: int, many: int = CHUNK) -> Iterable[list[Read]]:
        """Read many rows at a time, but few where somebody waits for answers to what comes through a pipe."""
        if self.source is None:
            return [self.typed]
        waits = not self.source.is_regular and self.out is None
        return split_chunks(self.rows(columns), few if waits else max(few, many))

    def pour(self, results: Iterable[Sequence[Result]], what: str = "") -> None:
        """Write answers as they come; if there are none, say what is missing, where that is a mistake."""
        started, count = time.perf_counter(), 0
        if self.source and sys.stderr.isatty() and (self.out or not sys.stdout.isatty()):
            from rich.progress import TextColumn

            self.bar = make_bar(TextColumn("{task.fields[note]}"))
            self.bar.add_task("", total=self.source.size or None, note="")
        with self.bar or nullcontext():
            for part in results:
                self.take(part)
                count += len(part)
                if self.bar and self.source:
                    note = f"{count:,} rows · {count / (time.perf_counter() - started):,.0f}/s"
                    self.bar.update(self.bar.task_ids[0], completed=self.source.bytes_read, note=note)
        if self.source and not self.answers and what:
            why = f"there are no {what} in it; write one on each line"
            raise DataError(f"{self.source.name}: {'every line was skipped' if self.skipped else why}")

    def take(self, results: Sequence[Result]) -> None:
        """Take results: write answers up to the first problem, or all of them where problems are skipped."""
        answers: list[Answer] = []
        error: NSEError | None = None
        for result in results:
            if not isinstance(result, BadLine):
                answers.append(result)
                continue
            last = result.number + result.lines - 1
            lines = f"lines {result.number} to {last}" if result.lines > 1 else f"line {result.number}"
            why = f"{self.source.name}: {lines}: {result.why}" if self.source else result.why
            if self.bad == "stop":
                error = (DataError if self.source else InputError)(why)
                break
            self.tell(f"{why}; skipped")
            self.skipped += result.lines
        if answers and (self.source or not error):  # what is typed is answered all or not at all
            self.answers += len(answers)
            cut = [answer for answer in answers if answer["cut"]]
            self.cut += len(cut)
            for answer in cut if self.tells_cuts else []:
                self.tell(f"sentence {answer['number']}: {answer['cut']:,} words cut")
            self.write(answers)
        if error:
            raise error

    def tell(self, line: str) -> None:
        """Say something on standard error, above the bar."""
        if self.bar:
            self.bar.console.print(f"nse: {line}", markup=False, highlight=False, soft_wrap=True)
        else:
            warn(line)

    def sum_up(self) -> None:
        """Say what was written, cut and passed over."""
        parts = []
        if self.out:
            parts.append(count_things(self.answers, "row"))
            parts += [f"{count_things(self.cut, 'text')} cut to what the model reads"] if self.cut else []
        if self.skipped:
            others = ", the rows are those of the others" if self.out and self.out.suffix == ".npy" else ""
            parts.append(f"{count_things(self.skipped, 'line')} skipped{others}")
        if parts:
            where = self.out or (self.source.name if self.source else self.given.command)
            warn(f"{where}: {'; '.join(parts)}")


def count_things(number: int, what: str) -> str:
    """Say how many there are of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def answer_rows(model: Model, verb: Verb, batch: int, rows: Sequence[Read], **settings: Any) -> list[Result]:
    """Answer rows by one request: for each its answer, or why there is none, in their order."""

    def ask(good: Sequence[Row]) -> Request:
        texts = [row.texts if len(row.texts) > 1 else row.texts[0] for row in good]
        return model.request(verb, texts, numbers=number_rows(good), **settings)

    rows, request = request_rows(rows, ask)
    answers = iter(model.answer(request, batch) if request else ())
    return [row if isinstance(row, BadLine) else identify(row, next(answers)) for row in rows]


def answer_groups(
    model: Model, question: str | None, batch: int, groups: Groups, top: int | None, strict: bool
) -> list[Result]:
    """Rank the candidates of each question, the best first; all are computed together."""
    from nse.inference.inputs import Request

    def ask(rows: Sequence[Row]) -> Request:
        asked = rows[0].texts[0] if question is None else question
        texts, numbers = [row.texts[-1] for row in rows], number_rows(rows)
        return model.request("rank", texts, question=asked, strict=strict, numbers=numbers)

    requested = [request_rows(group, ask) for group in groups]
    together = Request("scores", [row for _, request in requested if request for row in request.rows], list)
    scores = iter(model.compute(together, batch).split([len(r.rows) for _, r in requested if r]))
    results: list[Result] = []
    for group, request in requested:
        results += dict.fromkeys(row for row in group if isinstance(row, BadLine))  # once for each line
        rows = [row for row in group if isinstance(row, Row)]
        by_number = dict(zip(number_rows(rows), rows, strict=True))
        for answer in request.format(next(scores))[:top] if request else []:
            row = by_number[answer["number"]]
            asked = {"question": row.texts[0]} if len(row.texts) > 1 else {}
            results.append(asked | identify(row, answer))
    return results


def request_rows(rows: Sequence[Read], ask: Ask, again: bool = True) -> tuple[Sequence[Read], Request | None]:
    """Ask for rows together; where that is refused, those that are refused alone become problems."""
    good = [row for row in rows if isinstance(row, Row)]
    try:
        return rows, ask(good) if good else None
    except InputError:
        if not again:
            raise
    return request_rows([check_row(row, ask) for row in rows], ask, again=False)


def check_row(row: Read, ask: Ask) -> Read:
    """Ask for a row alone; one that is refused becomes a problem."""
    try:
        if isinstance(row, Row):
            ask([row])
    except InputError as error:
        return BadLine(row.number, str(error))
    return row


def number_rows(rows: Sequence[Row]) -> list[int]:
    """Number rows as errors call them: candidates by their place in the line, others by their line."""
    return [row.place or row.number for row in rows]


def identify(row: Row, answer: Answer) -> Answer:
    """Add to an answer what the file calls its row, after the number."""
    own = {"number": row.number} | ({} if row.id is None else {"id": row.id})
    own |= {"candidate": row.place} if row.place else {}
    named: Answer = {}
    for name, value in answer.items():
        named |= own if name == "number" else {name: value}
    return named
