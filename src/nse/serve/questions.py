"""The routes that ask the model: from a request to a question, and from what is told to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from nse.errors import InputError
from nse.inference.inputs import limit
from nse.inference.model import Model
from nse.inference.requests import Request, Verb
from nse.inference.tracing import refuse_memoryless
from nse.serve import schemas
from nse.serve.about import about
from nse.serve.limits import MOST_CANDIDATES, MOST_SENTENCES, MOST_WORDS, Limits
from nse.serve.problems import Problem, TooLongError
from nse.text.sentence_splitter import sentences

LONGEST_NAME = 60
"""Characters of the name of a part that a request has too much, or twice."""


class DuplicateError(ValueError):
    """A JSON object has a key twice."""


class Question(NamedTuple):
    """What is asked; see `nse.serve.queue.Job`.

    Attributes:
        rows: How many are computed.
        texts: All texts, to be measured.
        group: Questions of the same group are computed together; one without is computed alone.
        work: Reads the texts, or without a group does everything.
        answer: From what the question tells to the answer.
    """

    rows: int
    texts: Sequence[str]
    group: Hashable | None
    work: Callable[[], Any]
    answer: Callable[[Any], bytes] | None = None


class Route(NamedTuple):
    """A route that asks the model.

    Attributes:
        path: Where.
        about: What it does.
        takes: The form of a request.
        gives: The form of an answer; none for a trace, which has a schema of its own.
        parts: The parts of a request, as JSON Schema describes them.
        examples: Requests that the model answers.
        ask: From a request to the question.
        unfit: Why this model does not answer, if it does not; then the route is not described.
    """

    path: str
    about: str
    takes: type[schemas.Asking]
    gives: type[schemas.Answer] | None
    parts: dict[str, Any]
    examples: list[dict[str, Any]]
    ask: Callable[[Any], Question]
    unfit: str | None = None

    @property
    def hint(self) -> str:
        """What a request looks like."""
        return f"send {schemas.shape(self.parts)}"


def routes(model: Model, limits: Limits) -> list[Route]:
    """The routes of a model: those that fit it, and those that tell why they do not."""
    return [make(model, limits) for make in (predict, rank, translate, encode, trace)]


def predict(model: Model, limits: Limits) -> Route:
    """Labels of texts or pairs of them."""
    pairs = len(model.inputs) == 2
    text = schemas.text(limits, model.config.tokenizer)
    parts = {"texts": schemas.listed(schemas.listed(text, 2, 2) if pairs else text, 1, limits.max_texts)}

    def ask(given: Any) -> Question:
        texts = [text for pair in given.texts for text in pair] if pairs else given.texts
        return Question(
            len(given.texts),
            texts,
            "scores",
            lambda: model.request("predict", given.texts, strict=given.strict),
            lambda rows: answer(model, predictions=[without_texts(row) for row in rows]),
        )

    return Route(
        "/v1/predict",
        "The labels of texts, and how sure the model is.",
        schemas.Pairs if pairs else schemas.Texts,
        schemas.Predictions,
        parts,
        [{"texts": [texts if pairs else texts[0]]} for texts in examples(model)],
        ask,
        unfit(model, "predict"),
    )


def rank(model: Model, limits: Limits) -> Route:
    """Candidate answers to a question."""
    text = schemas.text(limits, model.config.tokenizer)

    def ask(given: schemas.Ranking) -> Question:
        return Question(
            len(given.candidates),
            [given.question, *given.candidates],
            "scores",
            lambda: model.request("rank", given.candidates, question=given.question, strict=given.strict),
            lambda rows: answer(model, ranking=[without_texts(row) for row in rows]),
        )

    return Route(
        "/v1/rank",
        "Candidate answers to a question, the best first; of equal ones the earlier first.",
        schemas.Ranking,
        schemas.Ranks,
        {"question": text, "candidates": schemas.listed(text, 1, limits.max_texts)},
        [{"question": texts[0], "candidates": texts[1:]} for texts in examples(model)],
        ask,
        unfit(model, "rank"),
    )


def translate(model: Model, limits: Limits) -> Route:
    """Translations of sentences."""

    def ask(given: schemas.Beamed) -> Question:
        def read() -> Request:
            refuse_empty(model, given.texts)
            return model.request("translate", given.texts, beam=given.beam, strict=given.strict)

        return Question(
            len(given.texts),
            given.texts,
            ("translations", given.beam),
            read,
            lambda rows: answer(model, translations=[without_texts(row) for row in rows]),
        )

    return Route(
        "/v1/translate",
        "The translations of sentences.",
        schemas.Beamed,
        schemas.Translations,
        {
            "texts": schemas.listed(schemas.text(limits, model.config.tokenizer), 1, limits.max_texts),
            "beam": schemas.BEAM,
        },
        [{"texts": texts} for texts in examples(model)],
        ask,
        unfit(model, "translate"),
    )


def encode(model: Model, limits: Limits) -> Route:
    """Vectors of texts; every model has them."""

    def ask(given: schemas.Texts) -> Question:
        def told(found: Any) -> bytes:
            rows = [without_texts(row) | {"vector": row["vector"].tolist()} for row in found]
            return answer(model, size=len(rows[0]["vector"]), vectors=rows)

        return Question(
            len(given.texts),
            given.texts,
            "vectors",
            lambda: model.request("encode", given.texts, strict=given.strict),
            told,
        )

    return Route(
        "/v1/encode",
        "A vector for each text.",
        schemas.Texts,
        schemas.Vectors,
        {"texts": schemas.listed(schemas.text(limits, model.config.tokenizer), 1, limits.max_texts)},
        [{"texts": texts} for texts in examples(model)],
        ask,
    )


def trace(model: Model, limits: Limits) -> Route:
    """What the memory did. It asks the encoders for more than others need, so nothing is computed beside."""
    beams = model.kind.translates
    fields = about(model)["fields"]
    many = fields[-1]["many"]
    most = len(fields) - 1 + (MOST_CANDIDATES if many else 1)
    parts = {"texts": schemas.listed(schemas.text(limits, model.config.tokenizer), len(fields), most)}

    def ask(given: schemas.Texts) -> Question:
        def work() -> bytes:
            refuse_undrawable(model, given.texts[:most])  # of more than that the model takes none
            beam = given.beam if isinstance(given, schemas.Beamed) else None
            return model.trace(*given.texts, beam=beam, strict=given.strict).to_json().encode()

        if many and len(given.texts) > most:
            told = f"there are {len(given.texts):,} texts and {most} can be looked at"
            raise TooLongError(f"{told}: leave some out")
        return Question(1, given.texts, None, work)

    try:
        refuse_memoryless(model)
        refused = None
    except InputError as error:
        refused = nameless(model, str(error))
    return Route(
        "/v1/trace",
        "What the memory did with texts, and what the model says to them.",
        schemas.Beamed if beams else schemas.Texts,
        None,
        {**parts, "beam": schemas.BEAM} if beams else parts,
        [{"texts": texts} for texts in examples(model)],
        ask,
        refused,
    )


def examples(model: Model) -> list[list[str]]:
    """Texts that the model takes."""
    told = about(model)
    found: list[list[str]] = told["examples"]
    return found or [["A dog runs.", "A cat sleeps."][: len(told["fields"])]]


def unfit(model: Model, verb: Verb) -> str | None:
    """Why a model does not do what a route is for, if it does not."""
    why = model.kind.describe_lack(model.labels, verb)
    return why and f"this model {why}: ask /v1/{model.task}"


def answer(model: Model, **told: Any) -> bytes:
    """An answer, as JSON."""
    return json.dumps({"model": model.name, **told}, allow_nan=False, separators=(",", ":")).encode()


def without_texts(row: dict[str, Any]) -> dict[str, Any]:
    """What is told of a text, without the text: who asked has it, and `number` says which it is."""
    return {name: value for name, value in row.items() if name not in ("text", "texts")}


def nameless(model: Model, message: str) -> str:
    """A message without the folder that the model lies in, which is nobody's business."""
    return message.replace(str(model.folder), model.name)


def read_question(route: Route, body: bytes) -> object:
    """Read the body of a request, in the form that the route takes."""
    try:
        question = route.takes.model_validate_json(body)
        # Of two equal keys that takes the last. What numbers there are does not matter any more.
        json.loads(body, object_pairs_hook=refuse_duplicates, parse_int=str, parse_float=str)
        return question
    except DuplicateError as error:
        raise Problem(400, "invalid_request", f"{error}; {route.hint}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if wrong["type"] == "json_invalid":
        raise Problem(422, "invalid_request", f"{wrong['msg']}; {route.hint}")
    place = ".".join(str(part) for part in wrong["loc"])[:LONGEST_NAME]
    raise Problem(422, "invalid_request", f"{place or 'body'}: {wrong['msg']}; {route.hint}")


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a JSON object with a key twice."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DuplicateError(f"the key {twice[:LONGEST_NAME]!r} is there twice: send it once")


def refuse_too_much(question: Question, limits: Limits) -> None:
    """Refuse more texts, or longer ones, than are let in, and texts with a NUL, which no text file has."""
    if question.rows > limits.max_texts:
        most = f"at most {limits.max_texts:,} are read at a time"
        raise TooLongError(f"there are {question.rows:,} texts and {most}: send the others separately")
    for number, text in enumerate(question.texts, start=1):
        if len(text) > limits.max_chars:
            most = f"{limits.max_chars:,} are read"
            raise TooLongError(f"text {number} has {len(text):,} characters and {most}: shorten it")
        if "\0" in text:
            raise Problem(400, "invalid_text", f"text {number} holds a NUL character: leave it out")


def refuse_empty(model: Model, texts: Sequence[str]) -> None:
    """Refuse texts without words, which a translator would translate by nothing."""
    for number, text in enumerate(texts, start=1):
        if not model.tokenize(text):
            raise InputError(f"sentence {number} is empty: give it at least one word")


def refuse_undrawable(model: Model, texts: Sequence[str]) -> None:
    """Refuse texts of which there could be no picture that somebody looks at."""
    for number, text in enumerate(texts, start=1):
        if model.kind.has_sentences:
            words, what, most = len(sentences(text)), "sentences", MOST_SENTENCES
        else:
            words, what, most = min(len(model.tokenize(text)), limit(model)), "words", MOST_WORDS
        if words > most:
            raise TooLongError(
                f"text {number} has {words:,} {what} and a picture shows {most}: shorten it, or ask for the "
                f"answer alone with nse {model.task}"
            )
