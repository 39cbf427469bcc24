"""The five kinds of models, a subsection of the paper each: what a model takes, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nse.errors import InputError, RunError
from nse.inference.inputs import Item, encode_text, split_texts
from nse.inference.requests import Answers, Request
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
    """What models take and answer; those of this class tell labels apart."""

    name: str
    inputs: tuple[str, ...]  # what its texts are called, in the order in which it takes them
    config: type[TextConfig]
    module: Callable[[Any, int, int], nn.Module]  # of a configuration, and of how many words and labels
    does: str = "gives a {kind} a label ({labels})"
    lacks: str = "tells no labels apart"  # what all others do not do
    wants: str = ""  # the texts of one answer, if they are not the inputs
    verb: str = "predict"  # the method and the command that ask it
    what: str = "scores"  # what is computed
    shown: tuple[str, ...] = ("label", "probabilities")  # what a trace tells of an answer
    called: tuple[str, ...] = ()  # what errors call its texts, if not as the inputs
    ranks: bool = False  # whether it orders candidates
    translates: bool = False  # whether it writes words, instead of scores
    has_sentences: bool = False  # whether texts are split into sentences

    def describe(self, labels: Sequence[str]) -> str:
        """Say what a model with these labels does."""
        return self.does.format(kind=self.name, labels=", ".join(labels))

    def answer_by(self, verb: str) -> Kind:
        """Give the kind of answers that a verb asks for: vectors of texts, or those of the kind itself."""
        if verb != "encode":
            return self
        other = {"what": "vectors", "called": ("document" if self.has_sentences else "sentence",)}
        return VectorKind(**{**vars(self), **other, "ranks": False, "translates": False})

    def describe_lack(self, labels: Sequence[str], verb: str) -> str | None:
        """Say what a model with these labels does and what not, if the verb is not for it."""
        if verb in (self.verb, "encode"):
            return None
        return f"{self.describe(labels)} and {next(k.lacks for k in KINDS.values() if k.verb == verb)}"

    def encode_items(
        self, model: Model, texts: Iterable[Any], numbers: Iterable[int], strict: bool, question: str = ""
    ) -> Iterator[Item]:
        """Encode what is to be answered; number 0 leaves its texts without one, and not empty."""
        asked = [encode_text(model, "question", question, strict)] if self.ranks else []
        for number, given in zip(numbers, texts, strict=False):
            names = [f"{name} {number}" if number else name for name in self.called or model.inputs]
            parts = [given] if self.called else split_texts(given, names)
            named, may_be_empty = zip(names, parts, strict=True), self.translates and number > 0
            encoded = (encode_text(model, *part, strict, may_be_empty) for part in named)
            told = {"texts": list(parts)} if len(parts) > 1 else {"text": parts[0]}
            yield Item(number or 1, (*encoded, *asked), told)

    def encode_given(self, model: Model, texts: Sequence[str], strict: bool) -> list[Item]:
        """Encode the texts of one answer, as for a trace."""
        n = len(model.inputs)
        if len(texts) < 2 if self.ranks else len(texts) != n:
            wants = self.wants or f"{n}, {' and '.join(model.inputs)}"
            raise InputError(f"texts: expected {wants}, got {len(texts)}")
        if self.ranks:
            return list(self.encode_items(model, texts[1:], count(1), strict, texts[0]))
        return list(self.encode_items(model, [texts if n > 1 else texts[0]], [0], strict))

    def request(self, model: Model, items: Sequence[Item], beam: int | None = None) -> Request:
        """Request answers to items, each different row once."""
        rows = [item.row for item in items]
        place = {row: at for at, row in enumerate(dict.fromkeys(rows))}
        index = [place[row] for row in rows] if len(place) < len(rows) else slice(None)
        return Request(self.what, list(place), lambda values: self.format(model, items, values[index]), beam)

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Make answers of what was computed for each item."""
        refuse_not_finite(values, " and ".join(model.inputs), [item.number for item in items])
        return [
            {
                "number": item.number,
                **item.given,
                "label": model.labels[max(range(len(chances)), key=chances.__getitem__)],
                "probabilities": dict(zip(model.labels, chances, strict=True)),
                **item.counts,
                **({"sentences": len(item.row[0])} if self.has_sentences else {}),
            }
            for item, chances in zip(items, values.double().softmax(-1).tolist(), strict=True)
        ]


class VectorKind(Kind):
    """What models of any kind answer to texts by themselves."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Give each text its vector."""
        refuse_not_finite(values, self.called[0], [item.number for item in items])
        rows = zip(items, values.numpy(), strict=True)
        return [{"number": item.number, **item.given, "vector": v, **item.counts} for item, v in rows]


class RankerKind(Kind):
    """Models that order candidate answers to a question."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Order candidates, the best first; of equal ones the earlier first."""
        refuse_not_finite(values, "candidate", [item.number for item in items])
        scores, answers = values[:, 0].double(), []
        chances, order = scores.sigmoid().tolist(), scores.argsort(descending=True, stable=True).tolist()
        for place, row in enumerate(order, start=1):
            measures = {"rank": place, "score": float(scores[row]), "probability": chances[row]}
            answers.append({**measures, "number": items[row].number, **items[row].given, **items[row].counts})
        return answers


class TranslatorKind(Kind):
    """Models that translate."""

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> Answers:
        """Put translations into words, given as ids and places [N, 2, most]."""
        answers = []
        for item, (ids, places) in zip(items, values.tolist(), strict=True):
            words = spell(model, item.texts[0].words, ids, places)
            text = {"translation": detokenize(words) if words else "", "words": words}
            counts = {"unknown": item.counts["unknown"], "cut": item.counts["cut"]}
            answers.append({"number": item.number, **item.given, **text, **counts})
        return answers


def spell(model: Model, source: Sequence[str], ids: Sequence[int], places: Sequence[int]) -> list[str]:
    """Put a translation into words: pieces joined, unknown ones from the source if so configured."""
    assert isinstance(model.config.model, TranslationConfig)
    assert model.target is not None
    unknown = source if model.config.model.replace_unknown else ()
    words = model.target.decode(ids, places, unknown) if source else []
    return Pieces.join(words) if model.config.pieces else words


def refuse_not_finite(values: Tensor, name: str, numbers: Sequence[int]) -> None:
    """Refuse rows [N, n] that are no answer: no label, no rank and no vector comes out of NaN."""
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
    lacks="ranks nothing",
    ranks=True,
    called=("candidate",),
    wants="a question and at least one candidate",
    verb="rank",
    shown=("rank", "number", "text", "score", "probability"),
)
SENTENCE = Kind("sentence", ("sentence",), SentenceConfig, SentenceClassifier)
DOCUMENT = Kind(*("document", ("document",), DocumentConfig, DocumentClassifier), has_sentences=True)
TRANSLATION = TranslatorKind(
    *("translation", ("source",), TranslationConfig, Translator),
    does="translates sentences",
    lacks="translates nothing",
    translates=True,
    called=("sentence",),
    wants="one, a sentence to translate",
    verb="translate",
    what="translations",
    shown=("translation", "words"),
)

KINDS = {kind.name: kind for kind in (PAIR, RANKING, SENTENCE, DOCUMENT, TRANSLATION)}
"""Sections 4.1 to 4.5 of the paper."""

OWN_INPUTS = {"own-pair": ["first", "second"], "own-sentence": ["text"]}
"""What texts are called in older folders of a user's own data, by the task that their configuration names."""


def read_older(data: dict[str, Any]) -> None:
    """Say in an older configuration what newer ones say: a pair of one label is a ranking."""
    labels, task = data.get("labels"), data.get("task")
    if data.get("kind", "pair") == "pair" and isinstance(labels, list) and len(labels) == 1:
        data["kind"] = "ranking"
    if "inputs" not in data and isinstance(task, str) and task in OWN_INPUTS:
        data["inputs"] = list(OWN_INPUTS[task])
