"""The five kinds of models, a subsection of the paper each: what a model takes, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nse.errors import InputError, RunError
from nse.inference.inputs import Item, encode_text
from nse.nn.document import DocumentClassifier, DocumentConfig
from nse.nn.pair import PairClassifier, PairConfig
from nse.nn.sentence import SentenceClassifier, SentenceConfig
from nse.nn.text_model import TextConfig
from nse.nn.translator import TranslationConfig, Translator
from nse.text.subwords import Pieces

if TYPE_CHECKING:
    from nse.inference.model import Model

LACKS = {"predict": "tells no labels apart", "rank": "ranks nothing", "translate": "translates nothing"}
"""What a model does not do that is asked otherwise."""


@dataclass(frozen=True)
class Kind:
    """What models take and answer; this one tells labels apart."""

    name: str
    inputs: tuple[str, ...]  # what its texts are called, in the order in which it takes them
    config: type[TextConfig]
    module: Callable[[Any, int, int], nn.Module]  # of a configuration, and of how many words and labels
    does: str = "gives a {name} a label ({labels})"
    verb: str = "predict"  # the method and the command that ask it
    noun: str = "sentence"  # what one text by itself is called
    what: str = "scores"  # that are computed
    shown: tuple[str, ...] = ("label", "probabilities")  # of an answer, beside a trace
    has_sentences: bool = False  # whether texts are split into sentences

    @property
    def ranks(self) -> bool:
        """Whether it orders candidates."""
        return self.verb == "rank"

    @property
    def translates(self) -> bool:
        """Whether it writes words, instead of scores."""
        return self.verb == "translate"

    def describe(self, labels: Sequence[str]) -> str:
        """Say what a model with these labels does."""
        return self.does.format(name=self.name, labels=", ".join(labels))

    def describe_lack(self, labels: Sequence[str], verb: str) -> str | None:
        """Say what a model with these labels does and what not, if it is asked by another verb."""
        return None if verb == self.verb else f"{self.describe(labels)} and {LACKS[verb]}"

    def encode_items(
        self, model: Model, texts: Iterable[Any], numbers: Iterable[int], strict: bool, question: str = ""
    ) -> Iterator[Item]:
        """Encode what is to be answered; the texts of number 0 are called by their names alone."""
        for number, given in zip(numbers, texts, strict=False):
            names = [name_text(name, number) for name in model.inputs]
            parts = zip(names, split_texts(given, names), strict=True)
            yield Item(number, tuple(encode_text(model, *part, strict) for part in parts))

    def encode_given(self, model: Model, texts: Sequence[str], strict: bool) -> list[Item]:
        """Encode texts that are given one after the other, as for a trace."""
        if len(texts) != len(model.inputs):
            wanted = f"{len(model.inputs)}, {' and '.join(model.inputs)}"
            raise InputError(f"texts: expected {wanted}, got {len(texts)}")
        (item,) = self.encode_items(model, [texts if len(texts) > 1 else texts[0]], [0], strict)
        return [item._replace(number=1)]

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> list[dict[str, Any]]:
        """Make answers of what was computed for each item."""
        refuse_not_finite(values, " and ".join(model.inputs), [item.number for item in items])
        return [
            {
                "number": item.number,
                **item.given,
                "label": model.labels[max(range(len(chances)), key=chances.__getitem__)],
                "probabilities": dict(zip(model.labels, chances, strict=True)),
                **item.count_words(),
                **({"sentences": len(item.row[0])} if self.has_sentences else {}),
            }
            for item, chances in zip(items, values.double().softmax(-1).tolist(), strict=True)
        ]


class Ranking(Kind):
    """Models that order candidate answers to a question."""

    def encode_items(
        self, model: Model, texts: Iterable[Any], numbers: Iterable[int], strict: bool, question: str = ""
    ) -> Iterator[Item]:
        """Encode candidates, the question beside each."""
        asked = encode_text(model, "question", question, strict)
        for number, text in zip(numbers, texts, strict=False):
            yield Item(number, (encode_text(model, f"candidate {number}", text, strict), asked))

    def encode_given(self, model: Model, texts: Sequence[str], strict: bool) -> list[Item]:
        """Encode a question and its candidates."""
        if len(texts) < 2:
            raise InputError(f"texts: expected a question and at least one candidate, got {len(texts)}")
        question, *candidates = texts
        return list(self.encode_items(model, candidates, range(1, len(texts)), strict, question))

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> list[dict[str, Any]]:
        """Order candidates, the best first; of equal ones the earlier first."""
        refuse_not_finite(values, "candidate", [item.number for item in items])
        scores = values[:, 0].double()
        chances = scores.sigmoid().tolist()
        return [
            {
                "rank": place,
                "score": float(scores[row]),
                "probability": chances[row],
                "number": items[row].number,
                "text": items[row].texts[0].text,
                **items[row].count_words(),
            }
            for place, row in enumerate(scores.argsort(descending=True, stable=True).tolist(), start=1)
        ]


class Translation(Kind):
    """Models that translate."""

    def encode_items(
        self, model: Model, texts: Iterable[Any], numbers: Iterable[int], strict: bool, question: str = ""
    ) -> Iterator[Item]:
        """Encode sentences, of which some may be empty."""
        for number, text in zip(numbers, texts, strict=False):
            yield Item(number, (encode_text(model, f"sentence {number}", text, strict, may_be_empty=True),))

    def encode_given(self, model: Model, texts: Sequence[str], strict: bool) -> list[Item]:
        """Encode a sentence."""
        if len(texts) != 1:
            raise InputError(f"texts: expected one, a sentence to translate, got {len(texts)}")
        return [Item(1, (encode_text(model, "sentence", texts[0], strict),))]

    def format(self, model: Model, items: Sequence[Item], values: Tensor) -> list[dict[str, Any]]:
        """Put translations into words, given as ids and places [N, 2, most]."""
        from nse.text.moses import detokenized

        answers = []
        for item, (ids, places) in zip(items, values.tolist(), strict=True):
            words, counts = spell(model, item.texts[0].words, ids, places), item.count_words()
            text = detokenized(words) if words else ""
            told = {"translation": text, "words": words, "unknown": counts["unknown"], "cut": counts["cut"]}
            answers.append({"number": item.number, **item.given, **told})
        return answers


def spell(model: Model, source: Sequence[str], ids: Sequence[int], places: Sequence[int]) -> list[str]:
    """Put a translation into words: pieces joined, unknown ones from the source if so configured."""
    assert isinstance(model.config.model, TranslationConfig)
    assert model.target is not None
    if not source:
        return []
    words = model.target.decode(ids, places, source if model.config.model.replace else ())
    return Pieces.join(words) if model.config.pieces else words


def name_text(name: str, number: int) -> str:
    """Name a text by its number, if it has one."""
    return f"{name} {number}" if number else name


def split_texts(given: Any, names: Sequence[str]) -> Sequence[str]:
    """Split an item into its texts, one for each name."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (tuple, list)) or len(texts) != len(names):
        got = f"{len(texts)}" if isinstance(texts, (tuple, list)) else type(given).__name__
        raise InputError(f"texts: expected {len(names)}, {' and '.join(names)}, got {got}")
    return texts


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
RANKING = Ranking(
    *("ranking", ("answer", "question"), PairConfig, PairClassifier),
    does="ranks candidate answers to a question",
    verb="rank",
    shown=("rank", "number", "text", "score", "probability"),
)
SENTENCE = Kind("sentence", ("sentence",), SentenceConfig, SentenceClassifier)
DOCUMENT = Kind(
    *("document", ("document",), DocumentConfig, DocumentClassifier), noun="document", has_sentences=True
)
TRANSLATION = Translation(
    *("translation", ("source",), TranslationConfig, Translator),
    does="translates sentences",
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
