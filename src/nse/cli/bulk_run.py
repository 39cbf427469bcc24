"""A run over rows: answers are written as they come, and problems met in their place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from nse.cli.people import Progress
from nse.cli.printing import Printer
from nse.cli.rows import CHUNK, Columns, Row, columns_of, in_chunks, up_to_a_problem
from nse.cli.rows import rows as rows_of
from nse.cli.writing import Answer, Writer, json_line, written
from nse.data.records import Format, Problem, Source, guess_format
from nse.errors import DataError, InputError


class Bad(StrEnum):
    """What to do with a line that cannot be read or answered."""

    stop = "stop"
    skip = "skip"


class Given(NamedTuple):
    """What was typed: where rows come from, how they are written, and where answers go."""

    command: str
    texts: list[str]
    file: Path | None
    form: Format | None
    columns: str | None
    name: str | None
    out: Path | None
    bad: Bad
    as_json: bool
    what: str = "texts"

    def refuse_contradictions(self) -> None:
        """Refuse options of which nothing would come."""
        if self.texts and self.file:
            raise InputError(f"{self.command}: give either {self.what}, or --file, not both")
        options = {"--format": self.form, "--columns": self.columns, "--id": self.name}
        typed = [name for name, value in options.items() if value is not None]
        if self.texts and typed:
            raise InputError(f"{self.command}: {', '.join(typed)}: only a file or standard input has such")
        if self.out and self.as_json:
            raise InputError(f"{self.command}: --json prints and --out writes a file: leave one out")


@contextmanager
def begun(
    given: Given, endings: Sequence[str], told: Callable[[Sequence[Answer]], Iterable[str]]
) -> Iterator[Run]:
    """A run whose input and output are open, which is found out before a model is loaded.

    When it ends well the file takes its name, and what has to be said is said.
    """
    given.refuse_contradictions()
    with ExitStack() as stack:
        source = None if given.texts else stack.enter_context(Source(given.file))
        sink: Writer = Printer((lambda rows: map(json_line, rows)) if given.as_json else told)
        if given.out:
            sink = stack.enter_context(written(given.out, endings))
        run = Run(given, source, sink)
        yield run
    run.sum_up()


class Run:
    """Rows that come and answers that go.

    Args:
        given: What was typed.
        source: Where rows are read; `None` where texts were typed.
        sink: Where answers go.
    """

    def __init__(self, given: Given, source: Source | None, sink: Writer):
        self.given, self.source, self.sink = given, source, sink
        self.typed = [Row(number, (text,)) for number, text in enumerate(given.texts, start=1)]
        self.answers = self.cut = self.skipped = 0
        self.tells_cuts = False
        self.nothing, self.size = "", 0

    def together(self, model: str, names: Sequence[str]) -> None:
        """Take the texts that were typed as one row."""
        texts = self.given.texts
        if len(texts) != len(names):
            raise InputError(
                f"{model} takes {len(names)} texts, {' and '.join(names)}, each in quotes; got {len(texts)}"
            )
        self.typed = [Row(1, tuple(texts))]

    def rows(
        self, names: Sequence[str], what: str, every: bool = False, listed: str = ""
    ) -> Iterator[Row | Problem]:
        """The rows to answer.

        Args:
            names: Their columns.
            what: What to call them where there are none; nothing if that is no mistake.
            every: See `nse.cli.rows.rows`.
            listed: See `nse.cli.rows.Columns`.
        """
        given, self.nothing = self.given, what
        if self.source is None:
            return iter(self.typed)
        self.size = self.source.size
        columns = columns_of(names, given.columns, given.name, listed)
        form = given.form or guess_format(given.file)
        found = rows_of(self.source, form, columns, every)
        return up_to_a_problem(found) if given.bad == Bad.stop else found

    def reading(self, names: Sequence[str], what: str) -> tuple[str, Format, Columns]:
        """What `rows` would read and how, for others to read it.

        Raises:
            InputError: It is no file.
        """
        given, self.nothing = self.given, what
        if self.source is None or not self.source.steady or given.file in (None, Path("-")):
            raise InputError(f"{given.command}: with --ray give a --file")
        columns = columns_of(names, given.columns, given.name)
        return str(Path(self.source.name).absolute()), given.form or guess_format(given.file), columns

    def chunks(
        self, rows: Iterator[Row | Problem], few: int, many: int = CHUNK
    ) -> Iterator[list[Row | Problem]]:
        """Rows, many at a time; few where somebody waits for the answers to what comes through a pipe."""
        waits = self.source is not None and not self.source.steady and self.given.out is None
        return in_chunks(rows, few if waits else max(few, many))

    def pour(self, found: Iterable[Sequence[Answer | Problem]]) -> None:
        """Write answers as they come; a problem is met in its place, after the answers before it.

        Raises:
            DataError: There was nothing to answer, or a line was a problem.
        """
        aside = self.source is not None and (self.given.out is not None or not sys.stdout.isatty())
        with Progress(self.size, aside) as progress:
            for some in found:
                good: list[Answer] = []
                for each in some:
                    if not isinstance(each, Problem):
                        good.append(each)
                        continue
                    if self.source and self.given.bad == Bad.stop:
                        self.write(good, progress)  # what came before it is out
                    self.meet(each, progress)
                self.write(good, progress)
                progress.advance(len(some), self.source.position() if self.source else 0)
        if self.source and not self.answers and self.nothing:
            why = f"there are no {self.nothing} in it; write one on each line"
            raise DataError(f"{self.source.name}: {'every line was skipped' if self.skipped else why}")

    def write(self, rows: Sequence[Answer], progress: Progress) -> None:
        """Pass answers on."""
        for row in rows:
            self.cut += row["cut"] > 0
            if row["cut"] and self.tells_cuts:
                progress.tell(f"sentence {row['number']}: {row['cut']:,} words cut")
        self.answers += len(rows)
        if rows:
            self.sink.write(rows)

    def meet(self, problem: Problem, progress: Progress) -> None:
        """Stop at a problem, or say that it is passed over."""
        last = problem.number + problem.lines - 1
        lines = f"lines {problem.number} to {last}" if problem.lines > 1 else f"line {problem.number}"
        where = f"{self.source.name}: {lines}: " if self.source else ""
        if self.given.bad == Bad.stop:
            raise (DataError if self.source else InputError)(f"{where}{problem.why}")
        progress.tell(f"{where}{problem.why}; skipped")
        self.skipped += problem.lines

    def sum_up(self) -> None:
        """Say what was written, cut and passed over."""
        out, told = self.given.out, []
        if out:
            told.append(counted(self.answers, "row"))
            told += [f"{counted(self.cut, 'text')} cut to what the model reads"] if self.cut else []
        if self.skipped:
            others = ", the rows are those of the others" if out and out.suffix == ".npy" else ""
            told.append(f"{counted(self.skipped, 'line')} skipped{others}")
        if told:
            where = out or (self.source.name if self.source else self.given.command)
            print(f"nse: {where}: {'; '.join(told)}", file=sys.stderr)


def counted(number: int, what: str) -> str:
    """How many there are of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
