"""Save and load a model folder, strictly: weights never travel without their vocabulary.

config.json         what the model is, every value spelled out
model.safetensors   the weights; never a pickle
vocabulary.txt      a word a line, in the order of the ids
target.txt          of a translator, the words that it translates into, likewise
README.md           the card: what it is, its figures, data and licence, how to use it
SHA256SUMS          the checksums of the others but the card
"""

from __future__ import annotations

import json
import os
import reprlib
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from nse.config import build, check_labels, check_name
from nse.errors import ConfigError, FieldsError, InputError, ModelError, shorten, suggest
from nse.files import parse_json, read_bounded, settle, write_bytes
from nse.inference import hub, weights
from nse.inference.card import write_card
from nse.inference.checksums import AGAIN, SUMS, Checksums, compute_digest, translate_errors, write_sums
from nse.inference.kinds import KINDS, read_older
from nse.inference.model import Model
from nse.nn.text_model import TextConfig
from nse.text.vocabulary import TargetVocabulary, Vocabulary

if TYPE_CHECKING:
    from nse.text.vectors import WordVectors

FORMAT = 1  # of the folder; one that a newer version made is refused by its number
CONFIG, WEIGHTS, WORDS, TARGET = "config.json", "model.safetensors", "vocabulary.txt", "target.txt"
CARD = "README.md"
RARITY = "rarity"  # the one other tensor of a model that has a row for each word
LONGEST = 1 << 20  # bytes that are read of a configuration or a card: none comes near

Words = TypeVar("Words", bound=Vocabulary)
Weights = Literal["float32", "float16"]
Vectors = Literal["float32", "float16", "int8"]


@dataclass(kw_only=True)
class ModelConfig:
    """What config.json says: enough to load the model without its recipe."""

    format: int = FORMAT
    kind: Literal["pair", "ranking", "sentence", "document", "translation"] = "pair"
    task: str  # what it was trained for
    labels: list[str]  # what its scores stand for, in their order; none for a translation
    tokenizer: Literal["paper", "lower", "treebank", "informal", "whitespace", "moses", "moses-en"]
    pieces: bool = False  # whether words are cut into pieces, those of the vocabulary
    weights: Weights = "float32"  # how weights are stored; they are computed with as float32
    vectors: Vectors = "float32"  # how the words' vectors are stored; int8 with a scale for each word
    data: str = ""  # the data set it was trained on
    inputs: list[str] = field(default_factory=list)  # its texts' names, if they are not the kind's
    model: TextConfig  # the model's own configuration, of the type that goes with its kind

    def __post_init__(self) -> None:
        """Refuse another format, labels that cannot be told apart, and names that cannot be printed."""
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
    """Write a model folder whole; whatever interrupts it, `load` finds the old model or the new one.

    Args:
        folder: Where; a model folder that is there is replaced.
        model: Of the kind, the sizes and the vocabulary that the configuration says.
        config: What the folder says of the model, and how weights are stored.
        vocabulary: The words, in the order of the rows of the model's embedding.
        card: What to tell of the model, see `nse.inference.card.write_card`; or a whole card.
        target: Of a translator, the words that it translates into.

    Raises:
        ModelError: The weights are not finite, the parts do not belong together, or it cannot be written.
    """
    if KINDS[config.kind].translates != (target is not None):
        raise ModelError(f"{folder}: a translator, and nothing else, needs the words that it translates into")
    words, into = vocabulary.to_bytes(), target.to_bytes() if target else b""
    if (size := max(len(words), len(into))) > Vocabulary.MAX_BYTES or len(vocabulary) > Vocabulary.MAX_WORDS:
        got, most = f"{len(vocabulary):,} words in {size:,} bytes", f"{Vocabulary.MAX_WORDS:,} words"
        raise ModelError(f"{folder}: {got}; at most {most} in {Vocabulary.MAX_BYTES:,} bytes can be loaded")
    modules = outline(folder, config, vocabulary, target), model
    expected, found = (weights.describe_layout(each.state_dict(), config) for each in modules)
    if mistakes := weights.compare_layouts(expected, found):
        raise ModelError(f"{folder}: the model is not what its configuration says: {mistakes}")
    files = {CONFIG: (json.dumps(asdict(config), indent=2, allow_nan=False) + "\n").encode()}
    files[WEIGHTS] = weights.write_weights(model.state_dict(), config, compute_digest(words + into))
    files |= {WORDS: words, **({TARGET: into} if target else {})}
    files |= {SUMS: write_sums(files), CARD: card if isinstance(card, bytes) else write_card(config, card)}
    replace_folder(folder, files)


def load(name: str | Path, device: str | torch.device = "cpu", revision: str | None = None) -> Model:
    """Load a model, ready to be asked.

        nse.load("snli").predict([("Two dogs play in the snow.", "The animals are outdoors.")])

    Args:
        name: A shipped model's name (`snli`, `sentiment`, `translate-en-de`), the folder of a model or of
            the run that trained it, or `hf:owner/name` for one on the Hugging Face Hub. Write `./name` for a
            folder of a shipped model's name, `hf:owner/name@commit` to pin one of the Hub.
        device: "cpu", "cuda", or "auto", which is a CUDA device where there is one.
        revision: Of a model on the Hub, the commit to take; the newest by default.

    Raises:
        ModelError: There is no such model, or a file of it is missing, broken, or does not fit the others.
    """
    place, folder = find_device(device), find(name, revision)
    sums = Checksums(folder)
    config = read_config(sums)
    vocabulary, words = read_vocabulary(sums, WORDS, Vocabulary)
    translates = KINDS[config.kind].translates
    target, into = read_vocabulary(sums, TARGET, TargetVocabulary) if translates else (None, b"")
    module = outline(folder, config, vocabulary, target)
    weights.load_weights(module, folder / WEIGHTS, config, compute_digest(words + into), sums)
    own = folder.parent.name if folder.name == "model" else folder.name  # a run's by the run
    called = str(name) if str(name).startswith(hub.PREFIX) else own
    with translate_errors(folder / WEIGHTS):  # there may be no memory to fold them
        return Model(module.to(place).eval(), config, vocabulary, folder, target, called)


def compact(
    model: str | Path,
    out: Path,
    weights: Weights = "float16",
    vectors: Vectors = "int8",
    card: Mapping[str, Any] | None = None,
    words: WordVectors | None = None,
) -> None:
    """Save a model again in less room, and knowing more words if some are given.

    Args:
        model: As for `load`.
        out: The new folder.
        weights: How to store weights.
        vectors: How to store the words' vectors.
        card: What to tell of it; `None` keeps the card it has.
        words: More words with their vectors, which must be of the set that the model was trained with.

    Raises:
        ModelError: The model learned its own vectors, or those of `words` are others than it knows.
    """
    loaded = load(model)
    config = replace(loaded.config, weights=weights, vectors=vectors)
    with translate_errors(loaded.folder / CARD):
        told = read_bounded(loaded.folder / CARD, LONGEST) if card is None else card
    module, vocabulary = add_words(loaded, words) if words else (loaded.module, loaded.vocabulary)
    save(out, module, config, vocabulary, told, loaded.target)


def add_words(loaded: Model, words: WordVectors) -> tuple[nn.Module, Vocabulary]:
    """Return the model with these words behind its own."""

    def stack(words_of: Iterable[str]) -> Tensor:
        return torch.from_numpy(words.look_up(list(words_of))).float()

    if loaded.config.model.trainable:
        raise ModelError(f"{loaded.folder}: it learned the vectors of its words; others would not fit")
    state, first = loaded.module.state_dict(), len(Vocabulary.SPECIAL)
    own, known = state[weights.VECTORS], loaded.vocabulary.words[first:]
    both = {row: word for row, word in enumerate(known, first) if words.find_row(word) is not None}
    rows = own[list(both)]
    error = rows.abs().amax(dim=1, keepdim=True) / 100  # what int8 may cost, and more
    if rows.shape[1] != words.dimension or ((rows - stack(both.values())).abs() > error).any():
        raise ModelError(f"{loaded.folder}: it was not trained with the vectors {words.name}")
    new = sorted(set(words.words) - {*known, *Vocabulary.SPECIAL})
    vocabulary = Vocabulary([*known, *new])
    state |= {weights.VECTORS: torch.cat([own, stack(new)])}
    if RARITY in state:  # a word that training never met is as rare as can be
        state[RARITY] = torch.cat([state[RARITY], state[RARITY].max().expand(len(new))])
    module = outline(loaded.folder, loaded.config, vocabulary, loaded.target)
    module.load_state_dict(state, assign=True)
    return module, vocabulary


def shipped() -> dict[str, Path]:
    """Return the models that come with the package, by name: a closed list."""
    room = Path(str(resources.files("nse.pretrained")))
    return {each.name: each for each in sorted(room.iterdir()) if (each / CONFIG).is_file()}


def find(name: str | Path, revision: str | None = None) -> Path:
    """Find the folder of a model; see `load`."""
    if str(name).startswith(hub.PREFIX):
        return hub.fetch_model(str(name), (CONFIG, WEIGHTS, WORDS, TARGET, SUMS, CARD), revision)
    if revision is not None:
        raise ModelError(f"{name}: only a model on the Hub, such as hf:owner/name, has a revision")
    if "\0" in str(name):
        raise ModelError(f"{str(name)!r}: no such model; no path holds a NUL")
    if str(name) in (models := shipped()):
        return models[str(name)]
    for folder in (Path(name), Path(name) / "model"):
        place = folder if os.path.exists(folder) else beside(folder, "old")  # where a save was cut off
        if any(os.path.isfile(place / file) for file in (CONFIG, WEIGHTS)):
            return place
    if os.path.isfile(Path(name) / "recipe.toml"):
        raise ModelError(f"{name}: this run has no model yet: resume it", ("continue", str(name)))
    if os.path.exists(name):
        raise ModelError(f"{name}: there is no {CONFIG} in it; give the folder of a model or of a run")
    near = suggest(str(name), models)
    names = f"a shipped one ({', '.join(models)})" if models else "none is shipped"
    hint = f"did you mean {near}?" if near else f"give the folder of a model or of a run; {names}"
    raise ModelError(f"{name}: no such model; {hint}")


def find_device(name: str | torch.device) -> torch.device:
    """Find the device of this name; "auto" is a CUDA device where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: expected auto, cpu or cuda, got {str(name)!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device: there is no CUDA device here; use cpu or auto")
    return device


def read_config(sums: Checksums) -> ModelConfig:
    """Read the configuration of a folder, given its checksums."""
    file = sums.folder / CONFIG
    try:
        data = parse_json(sums.read(CONFIG, LONGEST))
        if not isinstance(data, dict):
            raise ValueError(f"expected keys and values, got {type(data).__name__}")
    except ValueError as error:
        raise ModelError(f"{file} is no configuration: {error}; {AGAIN}") from None
    if type(number := data.get("format")) is int and number > FORMAT:
        raise ModelError(
            f"{file}: format {shorten(number)} is newer than {FORMAT}, which this nse reads: update nse"
        )
    read_older(data)
    kind = KINDS.get(str(data.get("kind")), KINDS["pair"])  # an unknown one is refused below, with the rest
    whole = make_dataclass("ModelConfig", [("model", kind.config)], bases=(ModelConfig,), kw_only=True)
    try:
        return ModelConfig(**vars(build(whole, data, source=str(file))))
    except RecursionError:
        raise ModelError(f"{file} is no configuration: nested too deep; {AGAIN}") from None
    except ConfigError as error:
        first, *mistakes = str(error).split("\n  ")
        raise ModelError("; ".join([first, *weights.keep_first(mistakes)])) from None


def read_vocabulary(sums: Checksums, name: str, kind: type[Words]) -> tuple[Words, bytes]:
    """Read the words of a folder, given its checksums; returns them and their file as it is."""
    content = sums.read(name, kind.MAX_BYTES)
    try:
        return kind.from_bytes(content), content
    except InputError as error:
        raise ModelError(f"{sums.folder / name} is no vocabulary: {error}; {AGAIN}") from None


def outline(
    folder: Path, config: ModelConfig, vocabulary: Vocabulary, target: TargetVocabulary | None
) -> nn.Module:
    """Build a model without its weights: nothing is allocated, whatever sizes are claimed, nor drawn."""
    outputs = len(config.labels if target is None else target)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), weights.Undrawn():
            return KINDS[config.kind].module(config.model, len(vocabulary), outputs).eval()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise ModelError(f"{folder / CONFIG}: no model can be built as it says: {reason}") from None


def replace_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace a model folder by a new one, which is whole before it takes the name.

    Between the two renames there is no folder of the name; `find` and the next save then take the old one.
    """
    place, new, old = Path(os.path.realpath(folder)), beside(folder, "new"), beside(folder, "old")
    try:
        bring_back(old, place)
        if place.exists() and (others := set(os.listdir(place)) - set(files)):
            what = f"other files than a model's: {weights.list_names(others)}"
            raise ModelError(f"{folder} holds {what}; choose another folder")
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(new / name, content)
        if place.exists():
            place.rename(old)
        new.rename(place)
        settle(place.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        with suppress(OSError):
            bring_back(old, place)
            shutil.rmtree(new, ignore_errors=True)
        reason = error.strerror or str(error)
        raise ModelError(f"{folder} cannot be written: {reason}; what was there is as it was") from None


def beside(folder: Path, state: str) -> Path:
    """Name the folder beside a model folder that is the new or the old one during a save, links followed."""
    place = Path(os.path.realpath(folder))
    return place.parent / f".{place.name}.{state}"


def bring_back(old: Path, place: Path) -> None:
    """Give a folder its name back where a save was cut off between its two renames."""
    if old.exists() and not place.exists():
        old.rename(place)
