"""What a recipe says whatever the task: how to train. And where the recipes are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from nse.errors import ConfigError


@dataclass
class Training:
    """How a model is trained."""

    epochs: int = 40
    """Passes over the training data; the best on dev is kept."""

    batch: int = 128
    """Examples per step."""

    rate: float = 3e-4
    """Adam's learning rate."""

    schedule: Literal["constant", "linear"] = "constant"
    """The learning rate over the run: as it is, or falling evenly to zero."""

    l2: float = 0.0
    """Adam's coupled weight decay."""

    clip: float = 15.0
    """The largest global norm of the gradient."""

    buckets: bool = False
    """Batches of similar length, so that less is padded."""

    capture: bool = True
    """On a GPU, replay each step as one CUDA graph; false runs it operation by operation."""

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"epochs and batch must be at least 1, got {self.epochs} and {self.batch}")
        if self.rate <= 0 or self.clip <= 0 or self.l2 < 0:
            raise ValueError("rate and clip must be above 0, l2 at least 0")


def recipes() -> dict[str, Traversable]:
    """Every shipped recipe by name, such as logic/nse."""
    return dict(sorted(_found(resources.files("nse.recipes"), "")))


def recipe_file(name: str) -> Traversable:
    """The file of a shipped recipe."""
    known = recipes()
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"{name}: no such recipe; {hint} (nse recipes lists them)")
    return known[name]


def headline(recipe: Traversable) -> str:
    """What a recipe is, from the first line of its header."""
    return recipe.read_text("utf-8").split("\n", 1)[0].removeprefix("#").strip()


def _found(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            yield prefix + entry.name.removesuffix(".toml"), entry
