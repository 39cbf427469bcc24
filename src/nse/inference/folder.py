"""Save and load a model folder; every file of it is verified.

config.json         configuration of the model
model.safetensors   weights
vocabulary.txt      words, one per line, in the order of their ids
target.txt          target words of a translator, in the same format
README.md           model card
SHA256SUMS          checksums of the other files, except the card
"""

from __future__ import annotations

import json
import logging
import os
import reprlib
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from nse.config import build, check_labels, check_name
from nse.errors import ConfigError, FieldsError, InputError, ModelError, shorten, suggest
from nse.files import parse_json, read_bounded, sync_folder, write_bytes
from nse.inference import hub, weights
from nse.inference.batches import Precision
from nse.inference.card import write_card
from nse.inference.kinds import KINDS, upgrade_config
from nse.inference.model import Model
from nse.inference.weights import GET_AGAIN, SUMS, Checksums, compute_digest, translate_errors, write_sums
from nse.nn.text_model import TextConfig
from nse.ops.dispatch import explain_no_bfloat16
from nse.text.vocabulary import TargetVocabulary, Vocabulary

if TYPE_CHECKING:
    from nse.text.vectors import WordVectors

log = logging.getLogger(__name__)

FORMAT = 1  # of the folder
CONFIG, WEIGHTS, WORDS, TARGET = "config.json", "model.safetensors", "vocabulary.txt", "target.txt"
CARD = "README.md"
RARITY = "rarity"  # the only tensor beside the embedding with a row for each word
MAX_BYTES = 1 << 20  # of a configuration or a card

AnyVocabulary = TypeVar("AnyVocabulary", bound=Vocabulary)
WeightsType = Literal["float32", "float16"]
VectorsType = Literal["float32", "float16", "int8"]


@dataclass(kw_only=True)
class ModelConfig:
    """Content of config.json: enough to load the model without its recipe."""

    format: int = FORMAT
    kind: Literal["pair", "ranking", "sentence", "document", "translation"] = "pair"
    task: str  # what it was trained for
    labels: list[str]  # in the order of the scores; empty for a translator
    tokenizer: Literal["paper", "lower", "treebank", "informal", "whitespace", "moses", "moses-en"]
    pieces: bool = False  # splits words into subwords, which are those of the vocabulary
    weights: WeightsType = "float32"  # stored type; all weights are computed with as float32
    vectors: VectorsType = "float32"  # stored type of the word vectors; int8 with a scale for each word
    data: str = ""  # data set it was trained on
    inputs: list[str] = field(default_factory=list)  # names of the texts, if not those of the kind
    model: TextConfig  # configuration of the module, of the class that belongs to the kind

    def __post_init__(self) -> None:
        """Check the format, the labels and the names."""
        if self.format != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {shorten(self.format)}")
        checked = {"task": check_name(self.task), "data": check_name(self.data)}
        checked |= {"labels": check_labels(self.labels), "inputs": check_labels(self.inputs)}
        if mistakes := {name: why for name, why in checked.items() if why}:
            raise FieldsError(mistakes)
        kind = KINDS[self.kind]
        if self.inputs and len(set(self.inputs)) != len(kind.inputs):
            raise ValueError(f"inputs must name {len(kind.inputs)}, got {reprlib.repr(self.inputs)}")
        if kind.translates:
            if self.labels:
                raise ValueError(f"a translation has no labels, got {reprlib.repr(self.labels)}")
        elif not self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels must be given, each once, got {reprlib.repr(self.labels)}")


def save(
    folder: Path,
    model: nn.Module,
    config: ModelConfig,
    vocabulary: Vocabulary,
    card: Mapping[str, Any] | bytes,
    target: TargetVocabulary | None = None,
) -> None:
    """Write a model folder atomically: after an interruption, `load` finds the old model or the new one.

    Args:
        folder: Path of the folder; an existing model folder is replaced.
        model: Module that fits the configuration and the vocabulary.
        config: Configuration of the model, and the types in which weights are stored.
        vocabulary: Words in the order of the rows of the embedding.
        card: Facts for `nse.inference.card.write_card`, or a card.
        target: Target words of a translator.

    Raises:
        ModelError: The weights are not finite, parts do not fit each other, or writing failed.
    """
    if KINDS[config.kind].translates != (target is not None):
        raise ModelError(f"{folder}: target: a translator needs its target words, other models have none")
    words, target_words = vocabulary.to_bytes(), target.to_bytes() if target else b""
    size = max(len(words), len(target_words))
    if size > Vocabulary.MAX_BYTES or len(vocabulary) > Vocabulary.MAX_WORDS:
        got, most = f"{len(vocabulary):,} words in {size:,} bytes", f"{Vocabulary.MAX_WORDS:,} words"
        raise ModelError(f"{folder}: {got}; at most {most} in {Vocabulary.MAX_BYTES:,} bytes can be loaded")
    modules = build_on_meta(folder, config, vocabulary, target), model
    expected, actual = (weights.describe_layout(module.state_dict(), config) for module in modules)
    if mistakes := weights.compare_layouts(expected, actual):
        raise ModelError(f"{folder}: the model does not fit its configuration: {mistakes}")
    files = {CONFIG: (json.dumps(asdict(config), indent=2, allow_nan=False) + "\n").encode()}
    files[WEIGHTS] = weights.write_weights(model.state_dict(), config, compute_digest(words + target_words))
    files |= {WORDS: words, **({TARGET: target_words} if target else {})}
    files |= {SUMS: write_sums(files), CARD: card if isinstance(card, bytes) else write_card(config, card)}
    replace_folder(folder, files)


def load(
    name: str | Path,
    device: str | torch.device = "cpu",
    revision: str | None = None,
    *,
    precision: Precision = "float32",
) -> Model:
    """Load a trained model.

        nse.load("snli").predict([("Two dogs play in the snow.", "The animals are outdoors.")])

    Args:
        name: Name of a shipped model (`snli`, `sentiment`, `translate-en-de`), path of a model folder or of
            a run, or `hf:owner/name` for a model on the Hugging Face Hub. Write `./snli` for a folder with
            the name of a shipped model, `hf:owner/name@commit` to pin a commit.
        device: "cpu", "cuda", or "auto": CUDA if available.
        revision: Commit of a model on the Hub; the newest by default.
        precision: "bfloat16" multiplies matrices in bfloat16 to answer, which is faster and less exact. A
            device without such products uses float32, which `Model.precision` then says.

    Raises:
        ModelError: There is no such model, or a file is missing, broken, or does not fit the others.
        InputError: There is no such device or precision.
    """
    torch_device = find_device(device)
    precision, folder = find_precision(precision, torch_device), find_folder(name, revision)
    sums = Checksums(folder)
    config = read_config(sums)
    vocabulary, words = read_vocabulary(sums, WORDS, Vocabulary)
    translates = KINDS[config.kind].translates
    target, target_words = read_vocabulary(sums, TARGET, TargetVocabulary) if translates else (None, b"")
    module = build_on_meta(folder, config, vocabulary, target)
    weights.load_weights(module, folder / WEIGHTS, config, compute_digest(words + target_words), sums)
    short_name = folder.parent.name if folder.name == "model" else folder.name  # of a run, the run's name
    if str(name).startswith(hub.PREFIX):
        short_name = str(name)
    with translate_errors(folder / WEIGHTS):  # folding them may run out of memory
        module = module.to(torch_device).eval()
        return Model(module, config, vocabulary, folder, target, short_name, precision)


def compact(
    model: str | Path,
    out: Path,
    weights: WeightsType = "float16",
    vectors: VectorsType = "int8",
    card: Mapping[str, Any] | None = None,
    words: WordVectors | None = None,
) -> None:
    """Save a smaller copy of a model, with more words if given.

    Args:
        model: Model, as for `load`.
        out: New folder.
        weights: Type in which to store the weights.
        vectors: Type in which to store the word vectors.
        card: Facts for a new card; `None` keeps the card.
        words: More word vectors, of the set with which the model was trained.

    Raises:
        ModelError: The model trained its word vectors, or has others than `words` has.
    """
    loaded = load(model)
    config = replace(loaded.config, weights=weights, vectors=vectors)
    with translate_errors(loaded.folder / CARD):
        new_card = read_bounded(loaded.folder / CARD, MAX_BYTES) if card is None else card
    module, vocabulary = add_words(loaded, words) if words else (loaded.module, loaded.vocabulary)
    save(out, module, config, vocabulary, new_card, loaded.target)


def add_words(loaded: Model, words: WordVectors) -> tuple[nn.Module, Vocabulary]:
    """Return the module and the vocabulary with these words appended."""

    def stack(words_of: Iterable[str]) -> Tensor:
        return torch.from_numpy(words.look_up(list(words_of))).float()

    if loaded.config.model.trainable:
        raise ModelError(f"{loaded.folder}: it trained its word vectors, so that others would not fit")
    state, first = loaded.module.state_dict(), len(Vocabulary.SPECIAL)
    vectors, known = state[weights.VECTORS], loaded.vocabulary.words[first:]
    both = {row: word for row, word in enumerate(known, first) if words.find_row(word) is not None}
    rows = vectors[list(both)]
    error = rows.abs().amax(dim=1, keepdim=True) / 100  # more than the rounding error of int8
    if rows.shape[1] != words.dimension or ((rows - stack(both.values())).abs() > error).any():
        raise ModelError(f"{loaded.folder}: it was not trained with the vectors {words.name}")
    new = sorted(set(words.words) - {*known, *Vocabulary.SPECIAL})
    vocabulary = Vocabulary([*known, *new])
    state |= {weights.VECTORS: torch.cat([vectors, stack(new)])}
    if RARITY in state:  # words that training never met are the rarest
        state[RARITY] = torch.cat([state[RARITY], state[RARITY].max().expand(len(new))])
    module = build_on_meta(loaded.folder, loaded.config, vocabulary, loaded.target)
    module.load_state_dict(state, assign=True)
    return module, vocabulary


def list_shipped() -> dict[str, Path]:
    """List the folders of the models that come with the package, by name."""
    parent = Path(str(resources.files("nse.pretrained")))
    return {folder.name: folder for folder in sorted(parent.iterdir()) if (folder / CONFIG).is_file()}


def find_folder(name: str | Path, revision: str | None = None) -> Path:
    """Find the folder of a model; see `load`."""
    if str(name).startswith(hub.PREFIX):
        return hub.fetch_model(str(name), (CONFIG, WEIGHTS, WORDS, TARGET, SUMS, CARD), revision)
    if revision is not None:
        raise ModelError(f"{name}: only a model on the Hub, such as hf:owner/name, has a revision")
    if "\0" in str(name):
        raise ModelError(f"{str(name)!r}: no such model; a path cannot hold a NUL character")
    if str(name) in (models := list_shipped()):
        return models[str(name)]
    for folder in (Path(name), Path(name) / "model"):
        if not os.path.exists(folder):
            folder = name_sibling(folder, "old")  # left there by an interrupted save
        if any(os.path.isfile(folder / file) for file in (CONFIG, WEIGHTS)):
            return folder
    if os.path.isfile(Path(name) / "recipe.toml"):
        raise ModelError(f"{name}: this run has no model yet", ("continue", str(name)))
    if os.path.exists(name):
        raise ModelError(f"{name}: there is no {CONFIG} in it; give a model folder or a run")
    near = suggest(str(name), models)
    hint = f"did you mean {near}?" if near else f"give a model folder, a run, or one of {', '.join(models)}"
    raise ModelError(f"{name}: no such model; {hint}")


def find_device(name: str | torch.device) -> torch.device:
    """Find the device of this name; "auto" is CUDA if available."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: expected auto, cpu or cuda, got {str(name)!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device: CUDA is not available; use cpu or auto")
    return device


def find_precision(name: Precision, device: torch.device) -> Precision:
    """Find the precision of this name; float32 on a device without products of bfloat16."""
    if name not in (names := get_args(Precision)):
        raise InputError(f"precision: expected {' or '.join(names)}, got {str(name)!r}")
    if name == "bfloat16" and (reason := explain_no_bfloat16(device)) is not None:
        log.info("precision bfloat16: float32 is used instead: %s", reason)
        return "float32"
    return name


def read_config(sums: Checksums) -> ModelConfig:
    """Read and verify the configuration of a folder."""
    file = sums.folder / CONFIG
    try:
        data = parse_json(sums.read(CONFIG, MAX_BYTES))
        if not isinstance(data, dict):
            raise ValueError(f"expected keys and values, got {type(data).__name__}")
    except ValueError as error:
        raise ModelError(f"{file} is not a valid configuration: {error}; {GET_AGAIN}") from None
    if type(number := data.get("format")) is int and number > FORMAT:
        raise ModelError(
            f"{file}: format {shorten(number)} is newer than {FORMAT}, which this nse reads: update nse"
        )
    upgrade_config(data)
    kind = KINDS.get(str(data.get("kind")), KINDS["pair"])  # `build` refuses an unknown one
    typed_config = make_dataclass("ModelConfig", [("model", kind.config)], bases=(ModelConfig,), kw_only=True)
    try:
        return ModelConfig(**vars(build(typed_config, data, source=str(file))))
    except RecursionError:
        raise ModelError(f"{file} is not a valid configuration: nested too deep; {GET_AGAIN}") from None
    except ConfigError as error:
        first, *mistakes = str(error).split("\n  ")
        raise ModelError("; ".join([first, *weights.truncate(mistakes)])) from None


def read_vocabulary(sums: Checksums, name: str, kind: type[AnyVocabulary]) -> tuple[AnyVocabulary, bytes]:
    """Read and verify a vocabulary of a folder; return it and the content of its file."""
    content = sums.read(name, kind.MAX_BYTES)
    try:
        return kind.from_bytes(content), content
    except InputError as error:
        raise ModelError(f"{sums.folder / name} is not a valid vocabulary: {error}; {GET_AGAIN}") from None


def build_on_meta(
    folder: Path, config: ModelConfig, vocabulary: Vocabulary, target: TargetVocabulary | None
) -> nn.Module:
    """Build a module on the meta device, where no size in a configuration can exhaust the memory."""
    outputs = len(config.labels if target is None else target)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), weights.SkipInit():
            return KINDS[config.kind].module(config.model, len(vocabulary), outputs).eval()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise ModelError(f"{folder / CONFIG}: no model can be built from it: {reason}") from None


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder completely, then let it replace a model folder.

    Between the two renames there is no folder of the name; `find_folder` and the next save use the old one.
    """
    target, new, old = (
        Path(os.path.realpath(folder)),
        name_sibling(folder, "new"),
        name_sibling(folder, "old"),
    )
    try:
        restore_folder(old, target)
        if target.exists() and (others := set(os.listdir(target)) - set(files)):
            what = f"other files than a model's: {weights.list_names(others)}"
            raise ModelError(f"{folder} holds {what}; choose another folder")
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(new / name, content)
        if target.exists():
            target.rename(old)
        new.rename(target)
        sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        with suppress(OSError):
            restore_folder(old, target)
            shutil.rmtree(new, ignore_errors=True)
        reason = error.strerror or str(error)
        raise ModelError(f"{folder} cannot be written: {reason}; the old files are unchanged") from None


def name_sibling(folder: Path, state: str) -> Path:
    """Return the path of the new or old version of a model folder during a save."""
    target = Path(os.path.realpath(folder))
    return target.parent / f".{target.name}.{state}"


def restore_folder(old: Path, target: Path) -> None:
    """Rename the old folder back if a save was interrupted between its two renames."""
    if old.exists() and not target.exists():
        old.rename(target)
