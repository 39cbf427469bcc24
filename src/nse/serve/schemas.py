"""Schemas of requests and answers: they validate requests and are published in /openapi.json."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, create_model
from pydantic.json_schema import models_json_schema

from nse.serve.settings import MAX_BEAM

COMPONENT = "#/components/schemas/{model}"
WORD = r"[^\x00\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
r"""Any character except NUL and what Python treats as whitespace; \S differs between regex engines."""

DESCRIPTIONS = {  # of all error statuses that a described route returns
    400: "The model cannot take these texts, a key occurs twice, or the host name is unknown.",
    401: "The API key is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request or a text is too long, or there are too many texts.",
    415: "The content type of the request is not application/json.",
    422: "The request does not fit the schema.",
    429: "Too many requests are waiting; try again after the number of seconds in Retry-After.",
    431: "The head of the request is too long, or has too many headers.",
    503: "The model failed on this request, or the server is shutting down.",
    504: "The answer was not ready in time.",
}
ERRORS = (400, 408, 413, 431)  # of every described path

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
ACCEPT_WHOLE_FLOATS = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)


class ModelRequest(BaseModel):
    """Fields of every request to the model; each route adds its texts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strict: bool = Field(False, description="Refuse texts that the model would truncate.")


class BeamRequest(ModelRequest):
    """Fields of a request to a translator."""

    beam: Annotated[Positive | None, Field(le=MAX_BEAM), ACCEPT_WHOLE_FLOATS] = Field(
        None, description="Beam size; default: that of the model."
    )


class StrictSchema(BaseModel):
    """Schema without additional fields."""

    model_config = ConfigDict(extra="forbid")


def make_schema(name: str, doc: str | None, base: type[BaseModel] = StrictSchema, **fields: Any) -> Any:
    """Make a schema with the fields of a base and others."""
    return create_model(name, __doc__=doc, __base__=base, **fields)


def make_answer(name: str, description: str, list_name: str, row: Any, **fields: Any) -> Any:
    """Make the schema of an answer: the name of the model, and a list with a row for each text."""
    fields[list_name] = list[row]
    return make_schema(name, description, model=str, **fields)


ROW: dict[str, Any] = {
    "number": Positive,
    "cut": Annotated[Count, Field(description="Words at the end that were truncated.")],
    "unknown": Annotated[Count, Field(description="Words that are not in the vocabulary.")],
}
ROW_WITH_WORDS = {**ROW, "words": Annotated[Count, Field(description="Words that were read.")]}
LABEL: dict[str, Any] = {
    "label": str,
    "probabilities": dict[str, Probability],
    "sentences": Annotated[Positive | None, Field(None, description="Sentences that were read.")],
}
RANK: dict[str, Any] = {"rank": Positive, "score": float, "probability": Probability}
Words = Annotated[list[str], Field(description="Words of the translation.")]
Prediction = make_schema("Prediction", "Label of a text.", **ROW_WITH_WORDS, **LABEL)
Vector = make_schema("Vector", "Vector of a text.", **ROW_WITH_WORDS, vector=list[float])
Ranked = make_schema("Ranked", "Rank of a candidate.", **ROW_WITH_WORDS, **RANK)
Translation = make_schema("Translation", "Translation of a text.", **ROW, translation=str, words=Words)
_best = "Candidates, the best first; equal ones in the given order."
_translations = "Translations, in the order of the texts."
Predictions = make_answer("Predictions", "Labels, in the order of the texts.", "predictions", Prediction)
Vectors = make_answer("Vectors", "Vectors, in the order of the texts.", "vectors", Vector, size=int)
Ranks = make_answer("Ranks", _best, "ranking", Ranked)
Translations = make_answer("Translations", _translations, "translations", Translation)
Health = make_schema("Health", "State of the server.", BaseModel, status=str)
What = make_schema("What", "Type and message of an error.", BaseModel, type=str, message=str)
Failure = make_schema("Failure", "Error response.", BaseModel, error=What)


def make_text(max_chars: int, tokenizer: str) -> Any:
    """Describe a text with at least one word; the limits are checked later, for better messages."""
    word = make_visible_pattern() if tokenizer == "moses-en" else WORD
    extra: dict[str, Any] = {"minLength": 1, "maxLength": max_chars, "pattern": rf"^[^\x00]*{word}[^\x00]*$"}
    return Annotated[str, Field(json_schema_extra=extra)]


def make_list(item: Any, max_items: int, min_items: int = 1) -> Any:
    """Describe a list; only that it is not empty is checked here."""
    extra: dict[str, Any] = {"minItems": min_items, "maxItems": max_items}
    # FailFast: only the first of a million errors is reported.
    return Annotated[list[item], FailFast(), Field(min_length=1, json_schema_extra=extra)]


def make_pair(item: Any) -> Any:
    """Describe a list of two."""
    return Annotated[list[item], Field(min_length=2, max_length=2)]


@cache
def make_visible_pattern() -> str:
    """Make a pattern of the characters that are neither whitespace nor dropped by the Moses tokenizer."""
    dropped = [code for code in range(0xE1000) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    escaped = (f"\\u{code:04x}" if code < 0x10000 else chr(code) for code in dropped)
    return f"{WORD[:-1]}{''.join(escaped)}]"


def format_example(schema: dict[str, Any]) -> str:
    """Write an example of a request with its required fields."""

    def format_field(field: dict[str, Any]) -> str:
        if field["type"] == "string":
            return '"..."'
        count = field["minItems"] if field["minItems"] == field["maxItems"] else 1
        return f"[{', '.join([format_field(field['items'])] * count)}]"

    fields = ", ".join(f'"{name}": {format_field(schema["properties"][name])}' for name in schema["required"])
    return f"{{{fields}}}"


def describe_json(name: str) -> dict[str, Any]:
    """Describe JSON content by the name of its schema."""
    return {"application/json": {"schema": {"$ref": COMPONENT.format(model=name)}}}


def describe_responses(content: dict[str, Any], errors: Iterable[int]) -> dict[str, Any]:
    """Describe the content of a successful response, and the errors by their statuses."""
    responses: dict[str, Any] = {"200": {"description": "Successful Response", "content": content}}
    for status in sorted(errors):
        responses[str(status)] = {"description": DESCRIPTIONS[status], "content": describe_json("Failure")}
        if status == 429:
            header = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}
            responses["429"]["headers"] = {"Retry-After": header}
    return responses


def describe_components(answers: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Describe the schemas of answers, errors and traces."""
    models: Any = [(model, "serialization") for model in (*answers, Health, Failure)]
    text = resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8")
    trace = json.loads(text.replace('"#/$defs/', '"#/components/schemas/Trace/$defs/'))
    del trace["$schema"]
    return {**models_json_schema(models, ref_template=COMPONENT)[1]["$defs"], "Trace": trace}
