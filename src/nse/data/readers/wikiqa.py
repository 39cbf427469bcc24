"""WikiQA: questions, and sentences of which some answer them, as published (section 4.2 of the paper)."""

from __future__ import annotations

from pathlib import Path

from nse.data.splits import Rows
from nse.errors import DataError
from nse.text.published import Source, find_each, lines

SPLITS = ("train", "dev", "test")
LABELS = ("wrong", "right")
ARCHIVE = "WikiQACorpus.zip"
HEADER = ("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label")


def sources(folder: Path) -> dict[str, Source]:
    """Where each split lies, in a data folder or in `WikiQACorpus/`; `DataError` says what is missing."""
    names = {split: f"WikiQA-{split}.tsv" for split in SPLITS}
    otherwise = f"{ARCHIVE}; type `nse data fetch wikiqa --data {folder}`"
    return find_each("wikiqa", names, [folder / "WikiQACorpus", folder], [ARCHIVE], otherwise)


def read(folder: Path) -> dict[str, Rows]:
    """The three splits, each with all questions, those without a right answer too."""
    return {split: read_split(source) for split, source in sources(folder).items()}


def read_split(source: Source) -> Rows:
    """The rows of one file; those of a question are a group."""
    questions: list[str] = []
    answers: list[str] = []
    labels: list[int] = []
    groups: list[int] = []
    numbers: dict[str, int] = {}
    number = 0
    for number, line in lines(source):
        try:
            fields = _fields(line)
            if number == 1:
                _check_header(fields)
                continue
            identity, question, _, _, _, answer, label = fields
            labels.append(_label(label))
            groups.append(_group(identity, numbers))
        except ValueError as error:
            raise DataError(f"{source}: line {number}: {error}") from None
        questions.append(question)
        answers.append(answer)
    if not number:
        raise DataError(f"{source}: is empty; remove it and get it again")
    return Rows({"question": questions, "answer": answers}, labels, len(labels), groups)


def _fields(line: bytes) -> list[str]:
    """What is between the tabs: a quote is a character like any other."""
    try:
        fields = line.decode("utf-8").removesuffix("\r").split("\t")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(fields) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} fields between tabs, got {len(fields)}")
    return fields


def _check_header(fields: list[str]) -> None:
    if tuple(fields) != HEADER:
        raise ValueError(f"expected the header {', '.join(HEADER)}, got {', '.join(fields)[:80]!r}")


def _label(field: str) -> int:
    if field not in ("0", "1"):
        raise ValueError(f"Label: expected 0 or 1, got {field[:40]!r}")
    return int(field)


def _group(identity: str, numbers: dict[str, int]) -> int:
    """The number of a question. Its rows lie together, since the candidates of one are numbered in order."""
    number = numbers.setdefault(identity, len(numbers))
    if number != len(numbers) - 1:
        raise ValueError(f"QuestionID: expected the rows of a question together, but {identity[:40]} returns")
    return number
