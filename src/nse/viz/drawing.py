"""SVG as text: a few shapes, every text escaped, and how wide a text is without a font at hand."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.sax.saxutils import escape

LONGEST = 24
"""Letters of a word that are shown."""

JOINERS, REPLACED = "\u200c\u200d", "\N{REPLACEMENT CHARACTER}"
"""What joins letters or keeps them apart, of no width; and what stands for a letter that is not shown."""

INK, FAINT, ACCENT, PAPER, LINE = "#1f2430", "#5b6472", "#8a1c3b", "#ffffff", "#d5d9e0"
"""Colours: of words, of captions, of what the memory did, behind everything, of boxes."""

LETTERS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

STYLE = (  # for our own pictures alone: in a notebook there are others
    f".nse text{{font:15px {LETTERS};fill:{INK}}}"
    f".nse .title{{font-weight:600}}.nse .caption{{fill:{FAINT}}}.nse .word{{text-anchor:middle}}"
    f".nse .end{{text-anchor:end}}"
    f".nse .box{{fill:{PAPER};stroke:{LINE}}}.nse .frame{{fill:none;stroke:{LINE}}}"
    f".nse .arc path{{fill:none;stroke:{ACCENT}}}.nse .arc polygon,.nse .cell{{fill:{ACCENT}}}"
    f".nse .second path{{stroke-dasharray:4 3}}"
)

Path = Sequence[tuple[str, Sequence[float]]]
"""A line: move (M), straight on (L), or along a curve (Q, C), each with its points, as SVG calls them."""

Corners = Sequence[tuple[float, float]]

_NARROW, _WIDE = frozenset("ijlItf.,:;'|!()[]{}`\"-/\\ "), frozenset("mwMWQ@%&—…")


def width_of(text: str, size: float) -> float:
    """Estimate how wide a text is in a sans-serif font of this size, rather more than less."""
    return sum(_width(letter) for letter in text) * size


def _width(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _WIDE:
        return 0.92
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if unicodedata.combining(letter) or letter in JOINERS:
        return 0.0
    return 0.7 if letter.isupper() else 0.58


def printable(text: str) -> str:
    """Replace what a terminal, a page or a picture would obey; joiners are part of some words."""
    return "".join(each if each.isprintable() or each in JOINERS else REPLACED for each in text)


def shortened(word: str, most: int = LONGEST) -> str:
    """Cut a word that is endless, and make it printable."""
    shown = printable(word[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


class Drawing:
    """An SVG picture, shape by shape, of parts of these sizes, one below the other.

    It has a title, and is told in words for who cannot see it.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], title: str, about: str):
        width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
        self._y = 0.0
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" class="nse" role="img">',
            f"<title>{clean(title)}</title><desc>{clean(about)}</desc><style>{STYLE}</style>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        ]

    def text(self) -> str:
        """Write the whole picture."""
        return "\n".join([*self._lines, "</svg>", ""])

    @contextmanager
    def part(self, height: float) -> Iterator[None]:
        """Draw a part of this height, below the one before."""
        self._lines.append(f'<g transform="translate(0 {self._y:.1f})">' if self._y else "<g>")
        yield
        self._lines.append("</g>")
        self._y += height

    @contextmanager
    def group(self, tip: str, kind: str = "", opacity: float = 1.0) -> Iterator[None]:
        """Draw shapes that belong together, of a class, lighter; the tip tells what is pointed at."""
        light = f' opacity="{opacity:.2f}"' if opacity < 1 else ""
        named = f' class="{kind}"' if kind else ""
        self._lines += [f"<g{named}{light}>", f"<title>{clean(tip)}</title>"]
        yield
        self._lines.append("</g>")

    def write(self, x: float, y: float, text: str, kind: str, turn: int = 0) -> None:
        """Write a text, turned by so many degrees."""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self._lines.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{turned}>{clean(text)}</text>')

    def arrow(self, path: Path, head: Corners, width: float) -> None:
        """Draw a line and its head."""
        self._lines.append(f'<path d="{path_text(path)}" stroke-width="{width:.2f}"/>')
        self._lines.append(f'<polygon points="{points_text(head)}"/>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "box", opacity: float = 1.0
    ) -> None:
        """Draw a rectangle."""
        light = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
        corners = ' rx="5"' if kind == "box" else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self._lines.append(f'<rect {place}{corners} class="{kind}"{light}/>')


def clean(text: str) -> str:
    """Make a text as XML may hold it: printable, and escaped."""
    return escape(printable(text))


def path_text(path: Path) -> str:
    """Write a line as SVG does: commands with their numbers."""
    return "".join(f"{letter}{' '.join(f'{number:.1f}' for number in at)}" for letter, at in path)


def points_text(corners: Corners) -> str:
    """Write the corners of a shape as SVG does."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
