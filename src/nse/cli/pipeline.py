"""Read rows, answer them in chunks, and write the answers in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nse.cli.options import OnBadLine
from nse.cli.output import Answer, Describe, Write, format_json, open_writer, warn
from nse.cli.rows import (
    CHUNK,
    CommandInput,
    Row,
    RowOrBadLine,
    RowSchema,
    parse_keys,
    read_rows,
    split_chunks,
    stop_at_bad_line,
)
from nse.console import make_bar
from nse.data.records import BadLine, LineSource, guess_format
from nse.errors import DataError, InputError, NSEError

if TYPE_CHECKING:
    from rich.progress import Progress

    from nse.inference.inputs import Request, Verb
    from nse.inference.model import Model

Groups = Sequence[Sequence[RowOrBadLine]]  # candidates of each question
Result = Answer | BadLine
MakeRequest = Callable[[Sequence[Row]], "Request"]


@contextmanager
def open_run(
    command_input: CommandInput,
    on_bad: OnBadLine,
    out: Path | None,
    endings: Sequence[str],
    as_json: bool,
    describe: Describe,
) -> Iterator[CommandRun]:
    """Open input and output before a model is loaded; print a summary at the end."""
    if out and as_json:
        raise InputError(f"{command_input.command}: give either --json or --out, not both")
    source_context = nullcontext() if command_input.texts else LineSource(command_input.file)
    with source_context as source, open_writer(out, endings, format_json if as_json else describe) as write:
        run = CommandRun(command_input, on_bad, out, source, write)
        yield run
    run.print_summary()


class CommandRun:
    """Run of a command; answers are written in order, and bad lines are reported in their place."""

    def __init__(
        self,
        command_input: CommandInput,
        on_bad: OnBadLine,
        out: Path | None,
        source: LineSource | None,
        write: Write,
    ):
        self.input, self.on_bad, self.out, self.source, self.write = command_input, on_bad, out, source, write
        texts = enumerate(command_input.texts, start=1)
        self.typed_rows: list[RowOrBadLine] = [Row(number, (text,)) for number, text in texts]
        self.answers = self.truncated = self.skipped = 0
        self.warns_of_truncation = False
        self.bar: Progress | None = None

    def read_rows(self, schema: RowSchema) -> Iterator[RowOrBadLine]:
        """Read the rows of the input, with the column names of the user."""
        if self.source is None:
            return iter(self.typed_rows)
        schema = parse_keys(self.input.columns, schema._replace(id=self.input.id))
        rows = read_rows(self.source, self.input.form or guess_format(self.input.file), schema)
        return stop_at_bad_line(rows) if self.on_bad == "stop" else rows

    def read_chunks(self, schema: RowSchema, few: int, many: int = CHUNK) -> Iterable[list[RowOrBadLine]]:
        """Read chunks of `many` rows, or of `few` if somebody types into a pipe and waits for answers."""
        if self.source is None:
            return [self.typed_rows]
        waits = not self.source.is_regular and self.out is None
        return split_chunks(self.read_rows(schema), few if waits else max(few, many))

    def write_results(self, chunks: Iterable[Sequence[Result]], noun: str = "") -> None:
        """Write results chunk by chunk; raise a `DataError` if the input has no `noun`."""
        started, count = time.perf_counter(), 0
        if self.source and sys.stderr.isatty() and (self.out or not sys.stdout.isatty()):
            from rich.progress import TextColumn

            self.bar = make_bar(TextColumn("{task.fields[note]}"))
            self.bar.add_task("", total=self.source.size or None, note="")
        with self.bar or nullcontext():
            for results in chunks:
                self.write_chunk(results)
                count += len(results)
                if self.bar and self.source:
                    note = f"{count:,} rows · {count / (time.perf_counter() - started):,.0f}/s"
                    self.bar.update(self.bar.task_ids[0], completed=self.source.bytes_read, note=note)
        if self.source and not self.answers and noun:
            why = f"there are no {noun} in it; write one on each line"
            raise DataError(f"{self.source.name}: {'every line was skipped' if self.skipped else why}")

    def write_chunk(self, results: Sequence[Result]) -> None:
        """Write the answers of a chunk; at a bad line raise an error after those before it, or skip it."""
        answers: list[Answer] = []
        error: NSEError | None = None
        for result in results:
            if not isinstance(result, BadLine):
                answers.append(result)
                continue
            last = result.number + result.lines - 1
            lines = f"lines {result.number} to {last}" if result.lines > 1 else f"line {result.number}"
            why = f"{self.source.name}: {lines}: {result.why}" if self.source else result.why
            if self.on_bad == "stop":
                error = (DataError if self.source else InputError)(why)
                break
            self.warn(f"{why}; skipped")
            self.skipped += result.lines
        if answers and (self.source or not error):  # typed texts are answered all or not at all
            self.answers += len(answers)
            truncated = [answer for answer in answers if answer["cut"]]
            self.truncated += len(truncated)
            for answer in truncated if self.warns_of_truncation else []:
                self.warn(f"sentence {answer['number']}: {answer['cut']:,} words truncated")
            self.write(answers)
        if error:
            raise error

    def warn(self, line: str) -> None:
        """Print a warning to standard error, above the progress bar."""
        if self.bar:
            self.bar.console.print(f"nse: {line}", markup=False, highlight=False, soft_wrap=True)
        else:
            warn(line)

    def print_summary(self) -> None:
        """Print how many rows were written, truncated and skipped."""
        parts = []
        if self.out:
            parts.append(count_things(self.answers, "row"))
            parts += [f"{count_things(self.truncated, 'text')} truncated"] if self.truncated else []
        if self.skipped:
            others = ", without a row" if self.out and self.out.suffix == ".npy" else ""
            parts.append(f"{count_things(self.skipped, 'line')} skipped{others}")
        if parts:
            where = self.out or (self.source.name if self.source else self.input.command)
            warn(f"{where}: {'; '.join(parts)}")


def count_things(number: int, noun: str) -> str:
    """Format a number of things, such as "1 row" or "2 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def answer_rows(
    model: Model, verb: Verb, batch: int, rows: Sequence[RowOrBadLine], **settings: Any
) -> list[Result]:
    """Answer rows with one request; a row that is refused becomes a `BadLine`."""

    def make_request(good: Sequence[Row]) -> Request:
        texts = [row.texts if len(row.texts) > 1 else row.texts[0] for row in good]
        return model.request(verb, texts, numbers=number_rows(good), **settings)

    rows, request = request_rows(rows, make_request)
    answers = iter(model.answer(request, batch) if request else ())
    return [row if isinstance(row, BadLine) else add_id(row, next(answers)) for row in rows]


def answer_groups(
    model: Model, question: str | None, batch: int, groups: Groups, top: int | None, strict: bool
) -> list[Result]:
    """Rank the candidates of each question, the best first; all are computed in the same batches."""
    from nse.inference.inputs import Request

    def make_request(rows: Sequence[Row]) -> Request:
        question_text = rows[0].texts[0] if question is None else question
        texts, numbers = [row.texts[-1] for row in rows], number_rows(rows)
        return model.request("rank", texts, question=question_text, strict=strict, numbers=numbers)

    requests = [request_rows(group, make_request) for group in groups]
    joint = Request("scores", [row for _, request in requests if request for row in request.rows], list)
    scores = iter(model.compute(joint, batch).split([len(r.rows) for _, r in requests if r]))
    results: list[Result] = []
    for group, request in requests:
        results += dict.fromkeys(row for row in group if isinstance(row, BadLine))  # once for each line
        rows = [row for row in group if isinstance(row, Row)]
        by_number = dict(zip(number_rows(rows), rows, strict=True))
        for answer in request.format(next(scores))[:top] if request else []:
            row = by_number[answer["number"]]
            question_field = {"question": row.texts[0]} if len(row.texts) > 1 else {}
            results.append(question_field | add_id(row, answer))
    return results


def request_rows(
    rows: Sequence[RowOrBadLine], make_request: MakeRequest, again: bool = True
) -> tuple[Sequence[RowOrBadLine], Request | None]:
    """Make one request for all rows; if it is refused, the rows that are refused alone become bad lines."""
    good = [row for row in rows if isinstance(row, Row)]
    try:
        return rows, make_request(good) if good else None
    except InputError:
        if not again:
            raise
    return request_rows([check_row(row, make_request) for row in rows], make_request, again=False)


def check_row(row: RowOrBadLine, make_request: MakeRequest) -> RowOrBadLine:
    """Request a row alone; return a `BadLine` if it is refused."""
    try:
        if isinstance(row, Row):
            make_request([row])
    except InputError as error:
        return BadLine(row.number, str(error))
    return row


def number_rows(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of rows for errors: position in the line for candidates, else the line."""
    return [row.candidate or row.number for row in rows]


def add_id(row: Row, answer: Answer) -> Answer:
    """Insert the line, id and candidate number of a row into its answer, in place of `number`."""
    fields = {"number": row.number} | ({} if row.id is None else {"id": row.id})
    fields |= {"candidate": row.candidate} if row.candidate else {}
    result: Answer = {}
    for name, value in answer.items():
        result |= fields if name == "number" else {name: value}
    return result
