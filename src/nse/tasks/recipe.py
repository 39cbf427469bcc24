"""Settings that recipes of all tasks have, and the shipped recipes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal

from nse.errors import ConfigError, suggest

MAX_THREADS = 1024  # more than any machine has cores


@dataclass
class Training:
    """Training settings of every task."""

    epochs: int = 40
    """Passes over the training data. The epoch with the best dev score is kept."""
    batch_size: int = 128
    """Examples per step."""
    lr: float = 3e-4
    """Learning rate of Adam."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate schedule; linear and cosine decay to zero by the end of the run."""
    warmup: float = 0.0
    """Fraction of the run with a linear warmup from zero; 0 for none."""
    weight_decay: float = 0.0
    """L2 penalty, as `weight_decay` of `torch.optim.Adam`."""
    clip_norm: float = 15.0
    """Maximum global norm of the gradient."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy; 0 for none."""
    ema_decay: float = 0.0
    """Decay of the exponential moving average of the weights, such as 0.999; 0 for none."""
    patience: int = 0
    """Stop after this many epochs in a row without a better dev score; 0 never stops early."""
    bucket_by_length: bool = False
    """Make batches of examples of similar length, which saves padding."""
    pad_to_multiple: int = 4
    """On a GPU, pad texts to a multiple of this many words, so that fewer CUDA graphs are captured."""
    group_by_question: bool = False
    """Ranking: put the candidates of a question into the same batch, as far as it has room."""
    cuda_graphs: bool = True
    """On a GPU, capture each training step as a CUDA graph."""
    tf32: bool = True
    """On a GPU, multiply matrices in TF32; false uses float32, which is slower."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints within an epoch; every epoch also ends with one."""
    threads: int = 0
    """CPU threads per process; 0: one per core, but 1 if `model.size` is below 128 (except documents)."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be trained with."""
        for name in ("epochs", "batch_size", "pad_to_multiple"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.lr <= 0 or self.clip_norm <= 0 or self.weight_decay < 0:
            raise ValueError("lr and clip_norm must be above 0, weight_decay at least 0")
        for name in ("warmup", "label_smoothing", "ema_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.bucket_by_length and self.group_by_question:
            raise ValueError("bucket_by_length and group_by_question cannot both be true")
        if self.patience < 0 or self.checkpoint_minutes < 0:
            raise ValueError("patience and checkpoint_minutes must be at least 0")
        if not 0 <= self.threads <= MAX_THREADS:
            raise ValueError(f"threads must be from 0 to {MAX_THREADS}, got {self.threads}")


@dataclass
class Recipe:
    """Settings of a run; `nse.tasks.make_recipe_class` types its sections by task and data source."""

    task: str
    """Task of the model."""
    seed: int = 1
    """Seed of the initial weights, of dropout and of the order of examples."""
    data: Any = None
    """Data settings."""
    model: Any = None
    """Model settings."""
    train: Any = None
    """Training settings."""

    def __post_init__(self) -> None:
        """Raise ValueError for frozen vectors that are not pretrained and pretrained vectors of subwords."""
        vectors = getattr(self.data, "vectors", None)
        if vectors == "" and not self.model.trainable:
            raise ValueError('vectors = "" needs model.trainable = true: there are no pretrained vectors')
        if vectors and getattr(self.data, "bpe_merges", 0):
            raise ValueError('subwords have no pretrained vectors: bpe_merges needs vectors = ""')


def list_recipes() -> dict[str, Traversable]:
    """List the files of the shipped recipes by name, such as logic/nse."""
    folders = [folder for folder in resources.files("nse.recipes").iterdir() if folder.is_dir()]
    files = {f"{folder.name}/{file.name}": file for folder in folders for file in folder.iterdir()}
    return dict(sorted((name[:-5], file) for name, file in files.items() if name.endswith(".toml")))


def find_recipe_file(name: str) -> Traversable:
    """Find the file of a shipped recipe."""
    known = list_recipes()
    if name not in known:
        near = suggest(name, known, cutoff=0.4)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"{name}: no such recipe; {hint}", ("recipes",))
    return known[name]


def read_headline(recipe: Traversable) -> str:
    """Read the first line of a recipe's header."""
    return recipe.read_text("utf-8").split("\n", 1)[0].removeprefix("#").strip()
