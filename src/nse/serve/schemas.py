"""What requests bring and answers hold: checked on the way in, described in /openapi.json."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, create_model
from pydantic.json_schema import models_json_schema

from nse.serve.settings import LARGEST_BEAM

COMPONENT = "#/components/schemas/{model}"
WORD = r"[^\x00\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
r"""Something that is not blank, as Python sees it, and no NUL; \S means less or more elsewhere."""

DESCRIPTIONS = {  # of every status of an error that a described route gives
    400: "The model cannot take these texts, a key comes twice, or the server is not called so.",
    401: "The key is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request or a text is too long, or there are too many texts.",
    415: "The request does not say that it is JSON.",
    422: "The request has another form than described.",
    429: "Too many requests wait already; come back after as many seconds as Retry-After says.",
    431: "The head of the request is too long, or has too many headers.",
    503: "The model failed on this request, or the server is about to stop.",
    504: "The answer was not there in time.",
}
ERRORS = (400, 408, 413, 431)  # statuses that any described path may give

Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
WHOLE = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)  # 3.0 is one, too


class Question(BaseModel):
    """What every question to the model may say; each route adds the texts that it takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strict: bool = Field(
        False, description="Refuse a text that is longer than the model reads, instead of cutting it."
    )


class BeamQuestion(Question):
    """A question to a model that translates."""

    beam: Annotated[Number | None, Field(le=LARGEST_BEAM), WHOLE] = Field(
        None,
        description="How many translations of a text are followed at a time; as the model is configured.",
    )


class Closed(BaseModel):
    """A form that holds nothing else."""

    model_config = ConfigDict(extra="forbid")


def make_form(form: str, about: str | None, base: type[BaseModel] = Closed, **parts: Any) -> Any:
    """Make the form of a question or an answer: that of its base, and other parts of these types."""
    return create_model(form, __doc__=about, __base__=base, **parts)


def make_answer(form: str, about: str, name: str, row: Any, **parts: Any) -> Any:
    """Make the form of an answer: of which model it is, and under a name a row for each text."""
    parts[name] = list[row]
    return make_form(form, about, model=str, **parts)


ROW: dict[str, Any] = {  # what is told of every text; `number` says which one, from 1
    "number": Number,
    "cut": Annotated[Count, Field(description="Words at its end that were not read.")],
    "unknown": Annotated[Count, Field(description="Words that were read and are not known.")],
}
COUNTED: dict[str, Any] = {**ROW, "words": Annotated[Count, Field(description="Words that were read.")]}
LABEL: dict[str, Any] = {
    "label": str,
    "probabilities": dict[str, Share],
    "sentences": Annotated[Number | None, Field(None, description="Of a document: those that were read.")],
}
Words = Annotated[list[str], Field(description="Of the translation.")]
Prediction = make_form("Prediction", "The label of a text.", **COUNTED, **LABEL)
Vector = make_form("Vector", "The vector of a text.", **COUNTED, vector=list[float])
RANK: dict[str, Any] = {"rank": Number, "score": float, "probability": Share}
Ranked = make_form("Ranked", "A candidate and its place.", **COUNTED, **RANK)
Translation = make_form("Translation", "The translation of a text.", **ROW, translation=str, words=Words)
_best = "The candidates, the best first; of equal ones the earlier first."
_all = "The translations of texts, in their order."
Predictions = make_answer("Predictions", "The labels of texts, in their order.", "predictions", Prediction)
Vectors = make_answer("Vectors", "The vectors of texts, in their order.", "vectors", Vector, size=int)
Ranks = make_answer("Ranks", _best, "ranking", Ranked)
Translations = make_answer("Translations", _all, "translations", Translation)
Health = make_form("Health", "How the server is.", BaseModel, status=str)
What = make_form("What", "What was wrong, and what to do.", BaseModel, type=str, message=str)
Failure = make_form("Failure", "The shape of every error.", BaseModel, error=What)


def make_text(most: int, tokenizer: str) -> Any:
    """Describe a text: something in it becomes a word, and no NUL. It is checked where 400 or 413 is said."""
    word = visible() if tokenizer == "moses-en" else WORD
    extra: dict[str, Any] = {"minLength": 1, "maxLength": most, "pattern": rf"^[^\x00]*{word}[^\x00]*$"}
    return Annotated[str, Field(json_schema_extra=extra)]


def make_list(item: Any, most: int, least: int = 1) -> Any:
    """Describe a list, of which likewise only that it is not empty is checked here."""
    first = FailFast()  # of a million mistakes the first is enough
    extra: dict[str, Any] = {"minItems": least, "maxItems": most}
    return Annotated[list[item], first, Field(min_length=1, json_schema_extra=extra)]


def make_pair(item: Any) -> Any:
    """Describe a list of exactly two."""
    return Annotated[list[item], Field(min_length=2, max_length=2)]


@cache
def visible() -> str:
    """Match what is neither blank nor a character that nobody sees, which Moses leaves out."""
    unseen = [code for code in range(0xE1000) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    escaped = (f"\\u{code:04x}" if code < 0x10000 else chr(code) for code in unseen)
    return f"{WORD[:-1]}{''.join(escaped)}]"


def show_shape(schema: dict[str, Any]) -> str:
    """Show what a question of a schema looks like, without the parts that may be left out."""

    def show(part: dict[str, Any]) -> str:
        if part["type"] == "string":
            return '"..."'
        times = part["minItems"] if part["minItems"] == part["maxItems"] else 1
        return f"[{', '.join([show(part['items'])] * times)}]"

    shown = ", ".join(f'"{name}": {show(schema["properties"][name])}' for name in schema["required"])
    return f"{{{shown}}}"


def describe_json(name: str) -> dict[str, Any]:
    """Describe JSON by the name of its schema."""
    return {"application/json": {"schema": {"$ref": COMPONENT.format(model=name)}}}


def describe_responses(content: dict[str, Any], errors: Iterable[int]) -> dict[str, Any]:
    """Describe what may be answered: the content of success, and errors by their status."""
    responses: dict[str, Any] = {"200": {"description": "Successful Response", "content": content}}
    for status in sorted(errors):
        responses[str(status)] = {"description": DESCRIPTIONS[status], "content": describe_json("Failure")}
        if status == 429:
            wait = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}
            responses["429"]["headers"] = {"Retry-After": wait}
    return responses


def describe_components(answers: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Describe answers, errors and traces."""
    models: Any = [(model, "serialization") for model in (*answers, Health, Failure)]
    text = resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8")
    trace = json.loads(text.replace('"#/$defs/', '"#/components/schemas/Trace/$defs/'))
    del trace["$schema"]
    return {**models_json_schema(models, ref_template=COMPONENT)[1]["$defs"], "Trace": trace}
