"""What a recipe says whatever the task, and where the recipes are."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Literal

from nse.errors import ConfigError, suggest

MOST_THREADS = 1024
"""More than any machine has cores for."""


@dataclass
class Training:
    """How a model is trained."""

    epochs: int = 40
    """Passes over the training data; the best on dev is kept."""
    batch: int = 128
    """Examples per step."""
    rate: float = 3e-4
    """Adam's learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The learning rate over the run: as it is, or falling to zero, evenly or along half a cosine."""
    warmup: float = 0.0
    """Share of the run in which the learning rate first rises from zero."""
    l2: float = 0.0
    """Adam's coupled weight decay."""
    clip: float = 15.0
    """The largest global norm of the gradient."""
    smoothing: float = 0.0
    """Share of each label's weight that is spread over all labels."""
    average: float = 0.0
    """What a step keeps of the moving average of the weights, such as 0.999; 0 averages nothing."""
    patience: int = 0
    """Stop after so many epochs in a row without a better dev; 0 never does."""
    buckets: bool = False
    """Batches of similar length, so that less is padded."""
    multiple: int = 4
    """On a GPU texts are padded to a multiple of so many words, so that few graphs are captured."""
    together: bool = False
    """Where candidates are ranked, those of a question one after the other, so that most are in one batch."""
    capture: bool = True
    """On a GPU, replay each step as one CUDA graph; false runs it operation by operation."""
    tf32: bool = True
    """On a GPU, multiply with the 10 bits of TF32 and add in float32; false takes all 23 bits, and longer."""
    minutes: float = 10.0
    """Between two checkpoints inside an epoch; each epoch ends with one anyway."""
    threads: int = 0
    """CPU threads of each process; 0: one per core, or 1 if `model.size` is below 128, save for documents."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        for name in ("epochs", "batch", "multiple"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.rate <= 0 or self.clip <= 0 or self.l2 < 0:
            raise ValueError("rate and clip must be above 0, l2 at least 0")
        for name in ("warmup", "smoothing", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.buckets and self.together:
            raise ValueError("buckets and together cannot both be true: batches go by length or by question")
        if self.patience < 0 or self.minutes < 0:
            raise ValueError("patience and minutes must be at least 0")
        if not 0 <= self.threads <= MOST_THREADS:
            raise ValueError(f"threads must be from 0 to {MOST_THREADS}, got {self.threads}")


@dataclass
class Recipe:
    """A run; `nse.tasks.recipe_class` gives its sections the types of a task and of the data's source."""

    task: str
    """The task this recipe is for."""
    seed: int = 1
    """Of initialisation, dropout and the order of examples."""
    data: Any = None
    """The data."""
    model: Any = None
    """The model."""
    train: Any = None
    """How it is trained."""

    def __post_init__(self) -> None:
        """Refuse vectors that are neither given nor learned, and those that pieces of words cannot have."""
        vectors = getattr(self.data, "vectors", None)
        if vectors == "" and not self.model.trained:
            raise ValueError('vectors = "" needs model.trained = true: nobody else gives the words vectors')
        if vectors and getattr(self.data, "subwords", 0):
            raise ValueError('pieces of words have no vectors: subwords needs vectors = ""')


def recipes() -> dict[str, Traversable]:
    """List every shipped recipe by name, such as logic/nse."""
    rooms = [room for room in resources.files("nse.recipes").iterdir() if room.is_dir()]
    files = {f"{room.name}/{file.name}": file for room in rooms for file in room.iterdir()}
    return dict(sorted((name[:-5], file) for name, file in files.items() if name.endswith(".toml")))


def recipe_file(name: str) -> Traversable:
    """Find the file of a shipped recipe."""
    known = recipes()
    if name not in known:
        near = suggest(name, known, cutoff=0.4)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"{name}: no such recipe; {hint}", ("recipes",))
    return known[name]


def headline(recipe: Traversable) -> str:
    """Read what a recipe is from the first line of its header."""
    return recipe.read_text("utf-8").split("\n", 1)[0].removeprefix("#").strip()
