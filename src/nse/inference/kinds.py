"""Five kinds of models, sections 4.1 to 4.5 of the paper: their inputs, encoding and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nse.errors import InputError, RunError
from nse.inference.inputs import Answers, Item, Request, encode_text, split_texts
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.nn.text_model import TextConfig
from nse.nn.translator import TranslationConfig, Translator
from nse.text.moses import detokenize
from nse.text.subwords import Pieces

if TYPE_CHECKING:
    from nse.inference.model import Model


@dataclass(frozen=True)
class Kind:
    """Kind of models: classifiers here, others in subclasses."""

    name: str
    inputs: tuple[str, ...]  # names of the texts, in order
    config: type[TextConfig]
    module: Callable[[Any, int, int], nn.Module]  # of a configuration, vocab_size and number of labels
    does: str = "gives a {kind} a label ({labels})"
    verb: str = "predict"  # main method and command
    output: str = "scores"  # what `verb` computes, see `Request`
    item_names: tuple[str, ...] = ()  # names of the texts in errors, if not `inputs`
    trace_inputs: str = ""  # what `trace` takes, if not one text for each input
    trace_fields: tuple[str, ...] = ("label", "probabilities")  # fields of an answer that a trace shows
    ranks: bool = False  # orders candidates
    translates: bool = False  # writes words instead of scores
    has_sentences: bool = False  # splits texts into sentences

    def describe(self, labels: Sequence[str]) -> str:
        """Describe what a model with these labels does."""
        return self.does.format(kind=self.name, labels=", ".join(labels))

    def for_verb(self, verb: str) -> Kind:
        """Return the kind that answers to a verb: for `encode` one with vectors, else this kind."""
        if verb != "encode":
            return self
        names = ("document" if self.has_sentences else "sentence",)
        changes = {"output": "vectors", "item_names": names, "ranks": False, "translates": False}
        return VectorKind(**{**vars(self), **changes})

    def explain_mismatch(self, labels: Sequence[str], verb: str) -> str | None:
        """Explain why a model with these labels has no answer to a verb; `None` if it has one."""
        return None if verb in (self.verb, "encode") else f"{self.describe(labels)}; it cannot {verb}"

    def encode_items(
        self, model: Model, texts: Iterable[Any], numbers: Iterable[int], strict: bool, question: str = ""
    ) -> Iterator[Item]:
        """Encode texts or pairs; one with the number 0 is named without a number, and must not be empty."""
        encoded_question = [encode_text(model, "question", question, strict)] if self.ranks else []
        for number, value in zip(numbers, texts, strict=False):
            names = [f"{name} {number}" if number else name for name in self.item_names or model.inputs]
            parts = [value] if self.item_names else split_texts(value, names)
            may_be_empty = self.translates and number > 0
            named = zip(names, parts, strict=True)
            encoded = (encode_text(model, name, text, strict, may_be_empty) for name, text in named)
            echo = {"texts": list(parts)} if len(parts) > 1 else {"text": parts[0]}
            yield Item(number or 1, (*encoded, *encoded_question), echo)

    def encode_inputs(self, model: Model, texts: Sequence[str], strict: bool) -> list[Item]:
        """Encode the texts of one answer, as `trace` takes them."""
        n = len(model.inputs)
        if len(texts) < 2 if self.ranks else len(texts) != n:
            expected = self.trace_inputs or f"{n}, {' and '.join(model.inputs)}"
            raise InputError(f"texts: expected {expected}, got {len(texts)}")
        if self.ranks:
            return list(self.encode_items(model, texts[1:], count(1), strict, texts[0]))
        return list(self.encode_items(model, [texts if n > 1 else texts[0]], [0], strict))

    def request(self, model: Model, items: Sequence[Item], beam: int | None = None) -> Request:
        """Request answers to items; equal rows are computed once."""
        rows = [item.row for item in items]
        positions = {row: position for position, row in enumerate(dict.fromkeys(rows))}
        index = [positions[row] for row in rows] if len(positions) < len(rows) else slice(None)
        return Request(
            self.output, list(positions), lambda values: self.format(model, items, values[index]), beam
        )

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Make answers of the scores of the items."""
        refuse_non_finite_scores(values, " and ".join(model.inputs), [item.number for item in items])
        return [
            {
                "number": item.number,
                **item.echo,
                "label": model.labels[max(range(len(probabilities)), key=probabilities.__getitem__)],
                "probabilities": dict(zip(model.labels, probabilities, strict=True)),
                **item.counts,
                **({"sentences": len(item.row[0])} if self.has_sentences else {}),
            }
            for item, probabilities in zip(items, values.double().softmax(-1).tolist(), strict=True)
        ]


class VectorKind(Kind):
    """Models of any kind, as encoders of single texts."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Make answers of the vectors of the items."""
        refuse_non_finite_scores(values, self.item_names[0], [item.number for item in items])
        rows = zip(items, values.numpy(), strict=True)
        return [{"number": item.number, **item.echo, "vector": v, **item.counts} for item, v in rows]


class RankerKind(Kind):
    """Models that order candidate answers to a question."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Sort candidates by score, the best first; ties keep their order."""
        refuse_non_finite_scores(values, "candidate", [item.number for item in items])
        scores, answers = values[:, 0].double(), []
        probabilities = scores.sigmoid().tolist()
        order = scores.argsort(descending=True, stable=True).tolist()
        for rank, row in enumerate(order, start=1):
            measures = {"rank": rank, "score": float(scores[row]), "probability": probabilities[row]}
            item = items[row]
            answers.append({**measures, "number": item.number, **item.echo, **item.counts})
        return answers


class TranslatorKind(Kind):
    """Models that translate."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Make translations of the ids and source positions [N, 2, T] of the items."""
        answers = []
        for item, (ids, positions) in zip(items, values.tolist(), strict=True):
            words = join_words(model, item.texts[0].words, ids, positions)
            text = {"translation": detokenize(words) if words else "", "words": words}
            counts = {"unknown": item.counts["unknown"], "cut": item.counts["cut"]}
            answers.append({"number": item.number, **item.echo, **text, **counts})
        return answers


def join_words(
    model: Model, source: Sequence[str], ids: Sequence[int], positions: Sequence[int]
) -> list[str]:
    """Turn ids into words: join subwords, and copy unknown words from the source if the model does so."""
    assert isinstance(model.config.model, TranslationConfig)
    assert model.target is not None
    copied = source if model.config.model.replace_unknown else ()
    words = model.target.decode(ids, positions, copied) if source else []
    return Pieces.join(words) if model.config.pieces else words


def refuse_non_finite_scores(values: Tensor, name: str, numbers: Sequence[int]) -> None:
    """Raise a `RunError` if rows [N, n] hold NaN or infinity."""
    wrong = (~values.isfinite().all(dim=-1)).nonzero().flatten().tolist()
    if wrong:
        first = ", ".join(str(numbers[row]) for row in wrong[:5]) + (", ..." if len(wrong) > 5 else "")
        raise RunError(f"the model's scores are NaN or infinite, for {name} {first}")


PAIR = Kind(
    *("pair", ("premise", "hypothesis"), PairConfig, PairClassifier),
    does="gives a pair of sentences a label ({labels})",
)
RANKING = RankerKind(
    *("ranking", ("answer", "question"), PairConfig, PairClassifier),
    does="ranks candidate answers to a question",
    verb="rank",
    item_names=("candidate",),
    trace_inputs="a question and at least one candidate",
    trace_fields=("rank", "number", "text", "score", "probability"),
    ranks=True,
)
SENTENCE = Kind("sentence", ("sentence",), SentenceConfig, SentenceClassifier)
DOCUMENT = Kind("document", ("document",), DocumentConfig, DocumentClassifier, has_sentences=True)
TRANSLATION = TranslatorKind(
    *("translation", ("source",), TranslationConfig, Translator),
    does="translates sentences",
    verb="translate",
    output="translations",
    item_names=("sentence",),
    trace_inputs="one, a sentence to translate",
    trace_fields=("translation", "words"),
    translates=True,
)

KINDS = {kind.name: kind for kind in (PAIR, RANKING, SENTENCE, DOCUMENT, TRANSLATION)}
"""Kinds by name."""

OWN_INPUTS = {"own-pair": ["first", "second"], "own-sentence": ["text"]}
"""Names of the texts in model folders of older versions, by task."""


def upgrade_config(data: dict[str, Any]) -> None:
    """Update the configuration of an older version: a pair with one label is a ranking."""
    labels, task = data.get("labels"), data.get("task")
    if data.get("kind", "pair") == "pair" and isinstance(labels, list) and len(labels) == 1:
        data["kind"] = "ranking"
    if "inputs" not in data and isinstance(task, str) and task in OWN_INPUTS:
        data["inputs"] = list(OWN_INPUTS[task])
