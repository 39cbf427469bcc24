"""Translation of a user's own sentences: recipe `own/translation`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nse.data.readers.parallel import LABELS
from nse.data.readers.table import Table
from nse.data.readers.table_rows import translated
from nse.data.splits import Rows
from nse.inference.folder import ModelConfig
from nse.tasks import own, translation
from nse.tasks.task import Examples, Task
from nse.text import moses
from nse.text.tokenize import TOKENIZERS

# fmt: off
LANGUAGES = (
    "as", "bn", "ca", "cs", "de", "el", "en", "es", "et", "fi", "fr", "ga", "gu", "hi", "hu", "is", "it",
    "kn", "lt", "lv", "ml", "mni", "mr", "nl", "or", "pa", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "ta",
    "tdt", "te", "yue", "zh",
)
# fmt: on
"""Languages whose abbreviations Moses knows."""


@dataclass
class TranslationColumns(own.Columns):
    """Which column of the files is what."""

    source: str = "source"
    """A sentence."""

    target: str = "target"
    """Its translation."""


@dataclass
class OwnTranslationData(own.OwnData, translation.TranslationData):  # type: ignore[misc]  # any name will do
    """Which files, and how they are read."""

    columns: TranslationColumns = field(default_factory=TranslationColumns)
    """Which column is what."""

    tokenizer: Literal["moses-en", "treebank", "informal", "whitespace"] = "moses-en"
    """How a source sentence becomes words; moses-en: by the rules of Moses for English, in lower case."""

    language: str = "de"
    """Of the translations, whose words Moses makes by its rules, in lower case; "" takes what is spaced."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        own.OwnData.__post_init__(self)
        translation.TranslationData.__post_init__(self)
        if self.language and self.language not in LANGUAGES:
            raise ValueError(f'language: expected "" or one of {", ".join(LANGUAGES)}, got {self.language!r}')

    def labels(self, train: Table) -> tuple[str, ...]:
        """A pair has none."""
        return LABELS

    def rows(self, table: Table, labels: Sequence[str]) -> Rows:
        """The rows of a file."""
        return translated(table, TOKENIZERS[self.tokenizer], self.target_words)

    def target_words(self, text: str) -> list[str]:
        """The words of a translation."""
        plain = moses.plain(text)
        if not self.language:
            return plain.split()
        return [word.lower() for word in moses.moses(plain, self.language)]


@dataclass
class OwnTranslationRecipe(translation.TranslationRecipe):
    """A run on a user's own translations."""

    task: Literal["own-translation"] = "own-translation"  # type: ignore[assignment]
    """The task this recipe is for."""
    data: OwnTranslationData = field(default_factory=OwnTranslationData)
    """The data."""


def examples(recipe: OwnTranslationRecipe, data: Path | None = None) -> Examples:
    """The files as tensors, and the words of both languages."""
    read = own.read_splits(recipe.data)
    prepared = own.prepared(recipe.data, read, data, translation=True)
    source, target, tables = translation.vocabularies(recipe.data, prepared)
    splits = {split: translation.rows(columns.texts, tables) for split, columns in prepared.splits.items()}
    if recipe.data.longest:
        splits["train"] = splits["train"].select(translation.short(prepared, recipe.data.longest))
    about = own.told(prepared, splits, read.notes)
    about["fingerprint"] += f"-{len(source)}-{len(target)}"
    pairs = {split: translation.spelled(prepared, split) for split in prepared.splits if split != "train"}
    vectors = own.vectors_of(recipe.model, prepared)
    return Examples(splits, source, about, vectors, target, pairs)


def folder(recipe: OwnTranslationRecipe) -> ModelConfig:
    """What a model folder says."""
    return ModelConfig(
        kind="translation",
        task=recipe.task,
        labels=[],
        tokenizer=recipe.data.tokenizer,
        pieces=recipe.data.subwords > 0,
        data=recipe.data.name,
        vectors="float32" if recipe.model.trained else "float16",
        model=recipe.model,
    )


TASK = Task(
    OwnTranslationRecipe,
    examples,
    translation.model,
    folder,
    translation.COLUMNS,
    paper={},
    loss=translation.loss,
    choose=translation.choose,
    figures=translation.figures,
    shown=translation.SHOWN,
    answers=translation.answers,
)
