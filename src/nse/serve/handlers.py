"""Routes under /v1: they parse and check requests, prepare them for the model, and serialize its answers."""

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
from nse.inference.inputs import Request, Verb
from nse.inference.model import Model
from nse.serve import schemas
from nse.serve.http_errors import HTTPError
from nse.serve.queue import HttpRequest
from nse.serve.settings import MAX_TRACE_CANDIDATES, MAX_TRACE_SENTENCES, MAX_TRACE_WORDS, Settings
from nse.text.sentence_splitter import split_sentences

MAX_NAME = 60  # characters of a field name that an error quotes
dump_json = partial(json.dumps, allow_nan=False, separators=(",", ":"), default=methodcaller("tolist"))

EXAMPLES: dict[str, list[list[str]]] = {  # by the kind of model
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


def find_examples(model: Model, count: int = 3) -> list[list[str]]:
    """Return example texts for a model, if it knows most of their words."""

    def is_known(texts: list[str]) -> bool:
        ids = model.vocabulary.encode([word for text in texts for word in model.tokenize(text)])
        return 2 * ids.count(model.vocabulary.UNKNOWN) < len(ids)

    return list(filter(is_known, EXAMPLES[model.kind.name]))[:count]


ROUTES: dict[str, tuple[str, Any]] = {  # description and schema of the answers
    "predict": ("Labels of texts, with probabilities.", schemas.Predictions),
    "rank": ("Candidate answers, the best first; equal ones in the given order.", schemas.Ranks),
    "translate": ("Translations of sentences.", schemas.Translations),
    "encode": ("Vectors of texts.", schemas.Vectors),
    "trace": ("Prediction and memory trace of texts.", None),  # trace.schema.json
}


@dataclass
class ModelRoute:
    """Route under /v1 that sends requests to the model."""

    model: Model
    settings: Settings
    name: str  # of the route and of the model's method
    request_type: type[schemas.ModelRequest]
    examples: Sequence[dict[str, Any]]  # valid requests

    def __post_init__(self) -> None:
        """Make the schema of requests."""
        self.description, self.answer_type = ROUTES[self.name]
        self.schema = self.request_type.model_json_schema()
        self.hint = f"send {schemas.format_example(self.schema)}"
        self.mismatch = self.explain_mismatch()

    def explain_mismatch(self) -> str | None:
        """Return why the model cannot answer this route, or None; such a route is not described."""
        reason = self.model.kind.explain_mismatch(self.model.labels, self.name)
        return reason and f"this model {reason}: use /v1/{self.model.task}"

    def read_request(self, request: HttpRequest, body: bytes) -> None:
        """Fill a request from its body, or refuse it."""
        content_type = request.headers.get(b"content-type", b"").decode("latin-1")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            message = f"the request needs the header Content-Type: application/json; {self.hint}"
            raise HTTPError(415, "not_json", message)
        if self.mismatch:
            raise HTTPError(400, "wrong_model", self.mismatch)
        self.fill(request, self.parse(body))
        max_texts, max_chars = self.settings.max_texts, self.settings.max_chars
        if request.rows > max_texts:
            refuse_size(f"there are {request.rows:,} texts, and at most {max_texts:,} allowed: send fewer")
        for number, text in enumerate(request.texts, start=1):
            if len(text) > max_chars:
                size = f"{len(text):,} characters, and at most {max_chars:,} allowed"
                refuse_size(f"text {number} has {size}: shorten it")
            if "\0" in text:
                raise HTTPError(400, "invalid_text", f"text {number} contains a NUL character: remove it")

    def parse(self, body: bytes) -> Any:
        """Parse and validate a body."""
        try:
            content = self.request_type.model_validate_json(body)
            # Pydantic takes the last of two equal keys. Numbers need no second conversion.
            json.loads(body, object_pairs_hook=self.check_keys, parse_int=str, parse_float=str)
            return content
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:MAX_NAME] or "body"
        message = first["msg"] if first["type"] == "json_invalid" else f"{field}: {first['msg']}"
        raise HTTPError(422, "invalid_request", f"{message}; {self.hint}")

    def check_keys(self, pairs: list[tuple[str, Any]]) -> None:
        """Refuse a JSON object in which a key occurs twice."""
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)[:MAX_NAME]
            message = f"the key {duplicate!r} occurs twice: send it once; {self.hint}"
            raise HTTPError(400, "invalid_request", message)

    def fill(self, request: HttpRequest, content: Any) -> None:
        """Fill a request with the texts of its body, and how to prepare and serialize them."""
        verb, fields = cast(Verb, self.name), dict(content)
        items = fields.pop("candidates", None) or fields.pop("texts")
        texts = [text for item in items for text in ([item] if isinstance(item, str) else item)]

        def prepare() -> Request:
            model_request = self.model.request(verb, items, **fields, repeats=False)
            if ((),) in model_request.rows:  # a translator would translate it to nothing
                number = next(n for n, text in enumerate(texts, start=1) if not self.model.tokenize(text))
                raise InputError(f"sentence {number} is empty: give it at least one word")
            return model_request

        request.group, request.rows = (verb, fields.get("beam")), len(items)
        request.texts = [fields["question"], *texts] if "question" in fields else texts
        request.prepare, request.serialize = prepare, self.serialize

    def serialize(self, rows: list[dict[str, Any]]) -> bytes:
        """Write an answer as JSON."""
        *others, list_name = self.answer_type.model_fields
        size = {"size": len(rows[0]["vector"])} if "size" in others else {}
        return dump_json({"model": self.model.name, **size, list_name: rows}).encode()


class TraceRoute(ModelRoute):
    """Route of traces; they need all keys of the encoders, so nothing else is computed meanwhile."""

    def explain_mismatch(self) -> str | None:
        """Return why the model cannot be traced, or None."""
        try:
            tracing.refuse_memoryless(self.model)
        except InputError as error:
            return hide_folder(self.model, error)
        return None

    def fill(self, request: HttpRequest, content: Any) -> None:
        """Fill a request with the texts of its body, and how to trace them."""
        texts, max_texts = content.texts, 1 + MAX_TRACE_CANDIDATES

        def prepare() -> bytes:
            check_drawable(self.model, texts)
            beam = getattr(content, "beam", None)
            return self.model.trace(*texts, beam=beam, strict=content.strict).to_json().encode()

        if self.model.kind.ranks and len(texts) > max_texts:
            refuse_size(f"there are {len(texts):,} texts, and at most {max_texts} can be drawn: send fewer")
        request.rows, request.texts, request.prepare = 1, texts, prepare


def make_routes(model: Model, settings: Settings) -> dict[str, ModelRoute]:
    """Make the routes of a model; those that do not fit it answer with the reason."""
    text = schemas.make_text(settings.max_chars, model.config.tokenizer)
    texts = schemas.make_list(text, settings.max_texts)
    is_pair, fields = len(model.inputs) > 1, len(list_fields(model))
    items = schemas.make_list(schemas.make_pair(text), settings.max_texts) if is_pair else texts
    max_traced = fields - 1 + (MAX_TRACE_CANDIDATES if model.kind.ranks else 1)
    traced = schemas.make_list(text, max_traced, fields)
    examples = find_examples(model) or [["A dog runs.", "A cat sleeps."][:fields]]
    predict_examples = [{"texts": [item if is_pair else item[0]]} for item in examples]
    rank_examples = [{"question": item[0], "candidates": item[1:]} for item in examples]
    text_examples = [{"texts": item} for item in examples]
    make_request = partial(schemas.make_schema, "Question", None)
    plain, beam = partial(make_request, schemas.ModelRequest), partial(make_request, schemas.BeamRequest)
    make, trace_request = partial(ModelRoute, model, settings), beam if model.kind.translates else plain
    routes = [
        make("predict", plain(texts=items), predict_examples),
        make("rank", plain(question=text, candidates=texts), rank_examples),
        make("translate", beam(texts=texts), text_examples),
        make("encode", plain(texts=texts), text_examples),
        TraceRoute(model, settings, "trace", trace_request(texts=traced), text_examples),
    ]
    return {f"/v1/{route.name}": route for route in routes}


def describe_model(model: Model, settings: Settings) -> dict[str, Any]:
    """Describe a model for /v1/model: its inputs, limits and examples."""
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
    """List the fields of the page's form, in the order of the arguments of `nse.Model.trace`."""
    if model.kind.ranks:
        return [{"label": "Question", "many": False}, {"label": "Candidates, one per line", "many": True}]
    if model.kind.translates:
        return [{"label": "English sentence", "many": False, "language": "en"}]
    return [{"label": name.capitalize(), "many": False} for name in model.inputs]


def hide_folder(model: Model, error: Exception) -> str:
    """Return the message of an error without the path of the model folder."""
    return str(error).replace(str(model.folder), model.name)


def refuse_size(message: str) -> NoReturn:
    """Refuse a request that exceeds a limit."""
    raise HTTPError(413, "too_long", message)


def check_drawable(model: Model, texts: Sequence[str]) -> None:
    """Refuse texts that are too long for a readable picture."""
    for number, text in enumerate(texts, start=1):
        count, unit, most = min(len(model.tokenize(text)), model.max_words), "words", MAX_TRACE_WORDS
        if model.kind.has_sentences:
            count, unit, most = len(split_sentences(text)), "sentences", MAX_TRACE_SENTENCES
        if count > most:
            refuse_size(f"text {number} has {count:,} {unit}, and at most {most} can be drawn: shorten it")
