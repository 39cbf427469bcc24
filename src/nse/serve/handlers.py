"""What is asked of the model: requests become questions, or are refused, and what it says becomes JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, NoReturn, cast

from pydantic import ValidationError

from nse.errors import InputError
from nse.inference import tracing
from nse.inference.inputs import limit
from nse.inference.model import Model
from nse.inference.requests import Request, Verb
from nse.serve import schemas
from nse.serve.errors import Problem
from nse.serve.queue import HttpRequest
from nse.serve.settings import MOST_CANDIDATES, MOST_SENTENCES, MOST_WORDS, Settings
from nse.text.sentence_splitter import split_sentences

LONGEST_NAME = 60  # characters of the name of a part that a request has too much, or twice
write_json = partial(json.dumps, allow_nan=False, separators=(",", ":"), default=methodcaller("tolist"))

EXAMPLES: dict[str, list[list[str]]] = {  # texts to begin with, by the kind of model
    "pair": [
        ["A little child sits quietly on a hand built rock wall in autumn.", "A child is sitting outdoors."],
        ["Three puppies are in the tub being sprayed with water by the vet.", "The dogs are being washed."],
        ["Two dogs play in the snow.", "Cats sleep inside a house."],
        ["all dogs bark", "some dogs bark"],
        ["no dogs dance", "some dogs dance"],
    ],
    "sentence": [
        ["A film that makes you think."],
        ["Two hours too long, and not funny for a minute."],
        ["It isn't bad at all."],
    ],
    "translation": [
        ["A dog runs across the snow."],
        ["A woman in a red dress plays the guitar."],
        ["Three children build a castle in the sand."],
    ],
    "ranking": [
        [
            "why does bread rise ?",
            "Yeast turns sugar into gas , and its bubbles lift the dough .",
            "Most people eat bread in the morning .",
        ],
    ],
    "document": [
        ["I did not expect much. The story is thin, but the actors are wonderful. I laughed a lot."]
    ],
}


def find_examples(model: Model, most: int = 3) -> list[list[str]]:
    """Find a few texts of the model's kind, most of whose words it knows."""

    def are_known(texts: list[str]) -> bool:
        ids = model.vocabulary.encode([word for text in texts for word in model.tokenize(text)])
        return 2 * ids.count(model.vocabulary.UNKNOWN) < len(ids)

    return list(filter(are_known, EXAMPLES[model.kind.name]))[:most]


ROUTES: dict[str, tuple[str, Any]] = {  # what each does, and the form of its answers
    "predict": ("The labels of texts, and how sure the model is.", schemas.Predictions),
    "rank": (
        "Candidate answers to a question, the best first; of equal ones the earlier first.",
        schemas.Ranks,
    ),
    "translate": ("The translations of sentences.", schemas.Translations),
    "encode": ("A vector for each text.", schemas.Vectors),
    "trace": ("What the memory did with texts, and what the model says to them.", None),  # but in viz
}


@dataclass
class Route:
    """A route under /v1 that asks the model."""

    model: Model
    settings: Settings
    name: str  # of the route and of the model's method
    takes: type[schemas.Question]  # the form of a request
    examples: Sequence[dict[str, Any]]  # requests that the model answers

    def __post_init__(self) -> None:
        """Write the schema of a request, and find why the model does not answer, if it does not."""
        self.about, self.gives = ROUTES[self.name]
        self.schema = self.takes.model_json_schema()
        self.hint = f"send {schemas.show_shape(self.schema)}"
        self.unfit = self.find_unfit()

    def find_unfit(self) -> str | None:
        """Find why the model does not answer, if so; then the route is not described."""
        why = self.model.kind.describe_lack(self.model.labels, self.name)
        return why and f"this model {why}: ask /v1/{self.model.task}"

    def ask(self, request: HttpRequest, body: bytes) -> None:
        """Tell a request what is asked by its body, or refuse it."""
        kind = request.headers.get(b"content-type", b"").decode("latin-1")
        if kind.partition(";")[0].strip().lower() != "application/json":
            message = f"the request must say Content-Type: application/json; {self.hint}"
            raise Problem(415, "not_json", message)
        if self.unfit:
            raise Problem(400, "wrong_model", self.unfit)
        self.fill(request, self.parse(body))
        if request.rows > self.settings.max_texts:
            most = f"at most {self.settings.max_texts:,} are read at a time"
            refuse_length(f"there are {request.rows:,} texts and {most}: send the others separately")
        for number, text in enumerate(request.texts, start=1):
            if len(text) > self.settings.max_chars:
                most = f"{self.settings.max_chars:,} are read"
                refuse_length(f"text {number} has {len(text):,} characters and {most}: shorten it")
            if "\0" in text:  # which no text file has
                raise Problem(400, "invalid_text", f"text {number} holds a NUL character: leave it out")

    def parse(self, body: bytes) -> Any:
        """Parse a body in the form that the route takes."""
        try:
            question = self.takes.model_validate_json(body)
            # Of two equal keys that takes the last. What numbers there are does not matter any more.
            json.loads(body, object_pairs_hook=self.refuse_twice, parse_int=str, parse_float=str)
            return question
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in wrong["loc"])[:LONGEST_NAME] or "body"
        what = wrong["msg"] if wrong["type"] == "json_invalid" else f"{place}: {wrong['msg']}"
        raise Problem(422, "invalid_request", f"{what}; {self.hint}")

    def refuse_twice(self, pairs: list[tuple[str, Any]]) -> None:
        """Refuse a JSON object with a key twice."""
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)[:LONGEST_NAME]
            message = f"the key {twice!r} is there twice: send it once; {self.hint}"
            raise Problem(400, "invalid_request", message)

    def fill(self, request: HttpRequest, question: Any) -> None:
        """Tell a request what is asked by a question."""
        verb, parts = cast(Verb, self.name), dict(question)
        items = parts.pop("candidates", None) or parts.pop("texts")
        texts = [text for item in items for text in ([item] if isinstance(item, str) else item)]

        def read() -> Request:
            made = self.model.request(verb, items, **parts, repeats=False)
            if ((),) in made.rows:  # which a translator would translate by nothing
                number = next(n for n, text in enumerate(texts, start=1) if not self.model.tokenize(text))
                raise InputError(f"sentence {number} is empty: give it at least one word")
            return made

        request.group, request.rows = (verb, parts.get("beam")), len(items)
        request.texts = [parts["question"], *texts] if "question" in parts else texts
        request.read, request.write = read, self.write

    def write(self, rows: list[dict[str, Any]]) -> bytes:
        """Write an answer as JSON."""
        *more, name = self.gives.model_fields
        size = {"size": len(rows[0]["vector"])} if "size" in more else {}
        answer = {"model": self.model.name, **size, name: rows}
        return write_json(answer).encode()


class TraceRoute(Route):
    """The route of traces. They ask the encoders for more than others need, so nothing is computed beside."""

    def find_unfit(self) -> str | None:
        """Find out whether the model has a memory."""
        try:
            tracing.refuse_memoryless(self.model)
        except InputError as error:
            return hide_folder(self.model, error)
        return None

    def fill(self, request: HttpRequest, question: Any) -> None:
        """Tell a request what is asked by a question."""
        texts, most = question.texts, 1 + MOST_CANDIDATES

        def read() -> bytes:
            refuse_undrawable(self.model, texts)
            beam = getattr(question, "beam", None)
            return self.model.trace(*texts, beam=beam, strict=question.strict).to_json().encode()

        if self.model.kind.ranks and len(texts) > most:
            refuse_length(f"there are {len(texts):,} texts and {most} can be looked at: leave some out")
        request.rows, request.texts, request.read = 1, texts, read


def make_routes(model: Model, settings: Settings) -> dict[str, Route]:
    """Make the routes of a model: those that fit it, and those that tell why they do not."""
    text = schemas.make_text(settings.max_chars, model.config.tokenizer)
    texts = schemas.make_list(text, settings.max_texts)
    is_pair, fields = len(model.inputs) > 1, len(list_fields(model))
    items = schemas.make_list(schemas.make_pair(text), settings.max_texts) if is_pair else texts
    shown = schemas.make_list(text, fields - 1 + (MOST_CANDIDATES if model.kind.ranks else 1), fields)
    examples = find_examples(model) or [["A dog runs.", "A cat sleeps."][:fields]]
    whole = [{"texts": each} for each in examples]
    ranked = [{"question": each[0], "candidates": each[1:]} for each in examples]
    form = partial(schemas.make_form, "Question", None)
    plain, beam = partial(form, schemas.Question), partial(form, schemas.BeamQuestion)
    make = partial(Route, model, settings)
    routes = [
        make("predict", plain(texts=items), [{"texts": [each if is_pair else each[0]]} for each in examples]),
        make("rank", plain(question=text, candidates=texts), ranked),
        make("translate", beam(texts=texts), whole),
        make("encode", plain(texts=texts), whole),
        TraceRoute(model, settings, "trace", (beam if model.kind.translates else plain)(texts=shown), whole),
    ]
    return {f"/v1/{route.name}": route for route in routes}


def describe_model(model: Model, settings: Settings) -> dict[str, Any]:
    """Tell what a model does, what it takes, and examples to click."""
    limits = ("max_texts", "max_chars", "max_body", "timeout")
    return {
        **tracing.describe_model(model),
        "command": model.task,
        "does": model.does,
        "fields": list_fields(model),
        "examples": find_examples(model),
        "limits": {name: getattr(settings, name) for name in limits},
    }


def list_fields(model: Model) -> list[dict[str, Any]]:
    """List the fields of a form, in the order in which texts are given to `nse.Model.trace`."""
    if model.kind.ranks:
        return [{"label": "Question", "many": False}, {"label": "Candidates, one a line", "many": True}]
    if model.kind.translates:
        return [{"label": "English sentence", "many": False, "language": "en"}]
    return [{"label": name.capitalize(), "many": False} for name in model.inputs]


def hide_folder(model: Model, error: Exception) -> str:
    """Write a message without the folder that the model lies in, which is nobody's business."""
    return str(error).replace(str(model.folder), model.name)


def refuse_length(message: str) -> NoReturn:
    """Refuse what is more than is read, or than a picture shows."""
    raise Problem(413, "too_long", message)


def refuse_undrawable(model: Model, texts: Sequence[str]) -> None:
    """Refuse texts of which there could be no picture that somebody looks at."""
    for number, text in enumerate(texts, start=1):
        words, what, most = min(len(model.tokenize(text)), limit(model)), "words", MOST_WORDS
        if model.kind.has_sentences:
            words, what, most = len(split_sentences(text)), "sentences", MOST_SENTENCES
        if words > most:
            refuse_length(f"text {number} has {words:,} {what}, and at most {most} can be drawn: shorten it")
