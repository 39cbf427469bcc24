"""What requests bring and answers hold: checked on the way in, described in /openapi.json."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from nse.serve.limits import LARGEST_BEAM, Limits

Many = FailFast()  # of a million mistakes the first is enough


def whole(value: Any) -> Any:
    """A number without a fraction as an integer: to JSON Schema, 3.0 is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Beam = Annotated[Annotated[int, Field(ge=1, le=LARGEST_BEAM)] | None, BeforeValidator(whole)]


class Asking(BaseModel):
    """What every question to the model may say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strict: bool = False


class Texts(Asking):
    """Texts, each by itself."""

    texts: Annotated[list[str], Many, Field(min_length=1)]


class Pairs(Asking):
    """Pairs of texts, such as a premise and a hypothesis."""

    texts: Annotated[list[tuple[str, str]], Many, Field(min_length=1)]


class Ranking(Asking):
    """A question and candidate answers."""

    question: str
    candidates: Annotated[list[str], Many, Field(min_length=1)]


class Beamed(Texts):
    """Texts, and how many translations of each to follow at a time."""

    beam: Beam = None


class Answer(BaseModel):
    """What every answer tells."""

    model_config = ConfigDict(extra="forbid")

    model: str


class Row(BaseModel):
    """What is told of every text; `number` says which one, from 1."""

    model_config = ConfigDict(extra="forbid")

    number: Annotated[int, Field(ge=1)]
    cut: Annotated[int, Field(ge=0, description="Words at its end that were not read.")]
    unknown: Annotated[int, Field(ge=0, description="Words that were read and are not known.")]


class Counted(Row):
    """A text and how much of it was read."""

    words: Annotated[int, Field(ge=0, description="Words that were read.")]


Chance = Annotated[float, Field(ge=0, le=1)]


class Prediction(Counted):
    """The label of a text."""

    label: str
    probabilities: dict[str, Chance]
    sentences: Annotated[int | None, Field(ge=1, description="Of a document: those that were read.")] = None


class Predictions(Answer):
    """The labels of texts, in their order."""

    predictions: list[Prediction]


class Vector(Counted):
    """The vector of a text."""

    vector: list[float]


class Vectors(Answer):
    """The vectors of texts, in their order."""

    size: int
    vectors: list[Vector]


class Ranked(Counted):
    """A candidate and its place."""

    rank: Annotated[int, Field(ge=1)]
    score: float
    probability: Chance


class Ranks(Answer):
    """The candidates, the best first; of equal ones the earlier first."""

    ranking: list[Ranked]


class Translation(Row):
    """The translation of a text."""

    translation: str
    words: Annotated[list[str], Field(description="Of the translation.")]


class Translations(Answer):
    """The translations of texts, in their order."""

    translations: list[Translation]


class Health(BaseModel):
    """How the server is."""

    status: str


WORD = r"[^\x00\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
r"""Something that is not blank, as Python sees it, and no NUL; \S means less or more elsewhere."""

BEAM = {
    "type": ["integer", "null"],
    "minimum": 1,
    "maximum": LARGEST_BEAM,
    "description": "How many translations of a text are followed at a time; as the model is configured.",
}


@cache
def visible() -> str:
    """Something that is neither blank nor a character that nobody sees, which Moses leaves out."""
    unseen = [code for code in range(0xE1000) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    return f"{WORD[:-1]}{''.join(map(escaped, unseen))}]"


def escaped(code: int) -> str:
    """A character as regular expressions have it."""
    return f"\\u{code:04x}" if code < 0x10000 else chr(code)


def text(limits: Limits, tokenizer: str) -> dict[str, Any]:
    """A text, as JSON Schema describes it: something in it becomes a word, and nothing in it is a NUL."""
    pattern = rf"^[^\x00]*{visible() if tokenizer == 'moses-en' else WORD}[^\x00]*$"
    return {"type": "string", "minLength": 1, "maxLength": limits.max_chars, "pattern": pattern}


def listed(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    """A list, as JSON Schema describes it."""
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def shape(parts: dict[str, Any]) -> str:
    """What a request of these parts looks like, those left out that it need not have."""

    def drawn(part: dict[str, Any]) -> str:
        if part["type"] == "string":
            return '"..."'
        times = part["minItems"] if part["minItems"] == part["maxItems"] else 1
        return f"[{', '.join([drawn(part['items'])] * times)}]"

    return "{" + ", ".join(f'"{name}": {drawn(part)}' for name, part in parts.items() if name != "beam") + "}"


def body(parts: dict[str, Any], examples: list[dict[str, Any]]) -> dict[str, Any]:
    """A request of these parts, for OpenAPI."""
    about = "Refuse a text that is longer than the model reads, instead of cutting it."
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in parts if name != "beam"],
        "properties": {**parts, "strict": {"type": "boolean", "default": False, "description": about}},
    }
    told = {f"{number}": {"value": example} for number, example in enumerate(examples, start=1)}
    content = {"application/json": {"schema": schema, **({"examples": told} if told else {})}}
    return {"requestBody": {"required": True, "content": content}}


def trace_schema() -> dict[str, Any]:
    """The schema of a trace, as a component of OpenAPI's."""
    text = resources.files("nse.viz").joinpath("trace.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text.replace('"#/$defs/', '"#/components/schemas/Trace/$defs/'))
    del found["$schema"]
    return found
