"""SVG as text: a few shapes, escaped texts, and an estimate of the width of a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.sax.saxutils import escape

MAX_LETTERS = 24
"""Longest word that is shown in full."""

JOINERS, REPLACEMENT = "\u200c\u200d", "\N{REPLACEMENT CHARACTER}"
"""Zero-width characters that some scripts need, and what unprintable characters are replaced by."""

INK, FAINT, ACCENT, PAPER, LINE = "#1f2430", "#5b6472", "#8a1c3b", "#ffffff", "#d5d9e0"
"""Colours of words, captions, arcs and cells, the background, and boxes."""

LETTERS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

STYLE = (  # every selector begins with .nse: in a notebook the style sheet applies to the whole page
    f".nse text{{font:15px {LETTERS};fill:{INK}}}"
    f".nse .title{{font-weight:600}}.nse .caption{{fill:{FAINT}}}.nse .word{{text-anchor:middle}}"
    f".nse .end{{text-anchor:end}}"
    f".nse .box{{fill:{PAPER};stroke:{LINE}}}.nse .frame{{fill:none;stroke:{LINE}}}"
    f".nse .arc path{{fill:none;stroke:{ACCENT}}}.nse .arc polygon,.nse .cell{{fill:{ACCENT}}}"
    f".nse .second path{{stroke-dasharray:4 3}}"
)

SvgPath = Sequence[tuple[str, Sequence[float]]]
"""SVG path: commands (M, L, Q, C), each with its coordinates."""

Corners = Sequence[tuple[float, float]]

_NARROW, _WIDE = frozenset("ijlItf.,:;'|!()[]{}`\"-/\\ "), frozenset("mwMWQ@%&—…")


def estimate_width(text: str, font_size: float) -> float:
    """Estimate the width of a text in a sans-serif font, too large rather than too small."""
    return sum(_estimate_letter(letter) for letter in text) * font_size


def _estimate_letter(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _WIDE:
        return 0.92
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if unicodedata.combining(letter) or letter in JOINERS:
        return 0.0
    return 0.7 if letter.isupper() else 0.58


def make_printable(text: str) -> str:
    """Replace control characters and others that a terminal or a browser would interpret."""
    return "".join(c if c.isprintable() or c in JOINERS else REPLACEMENT for c in text)


def clip_word(word: str) -> str:
    """Make a word printable, and truncate it to `MAX_LETTERS`."""
    clipped = make_printable(word[: MAX_LETTERS + 1])
    return clipped if len(clipped) <= MAX_LETTERS else f"{clipped[: MAX_LETTERS - 1]}…"


class Drawing:
    """SVG picture built shape by shape, from parts of the given sizes that are stacked vertically."""

    def __init__(self, sizes: Sequence[tuple[float, float]], title: str, description: str):
        width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
        self._y = 0.0
        self._lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" class="nse" role="img">',
            f"<title>{escape_text(title)}</title><desc>{escape_text(description)}</desc>"
            f"<style>{STYLE}</style>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        ]

    def to_svg(self) -> str:
        """Return the whole picture."""
        return "\n".join([*self._lines, "</svg>", ""])

    @contextmanager
    def draw_part(self, height: float) -> Iterator[None]:
        """Draw the shapes of the block into a part of this height, below the previous part."""
        self._lines.append(f'<g transform="translate(0 {self._y:.1f})">' if self._y else "<g>")
        yield
        self._lines.append("</g>")
        self._y += height

    @contextmanager
    def draw_group(self, tooltip: str, css_class: str = "", opacity: float = 1.0) -> Iterator[None]:
        """Group the shapes of the block under a tooltip."""
        light = f' opacity="{opacity:.2f}"' if opacity < 1 else ""
        attribute = f' class="{css_class}"' if css_class else ""
        self._lines += [f"<g{attribute}{light}>", f"<title>{escape_text(tooltip)}</title>"]
        yield
        self._lines.append("</g>")

    def draw_text(self, x: float, y: float, text: str, css_class: str, degrees: int = 0) -> None:
        """Draw a text, rotated by some degrees."""
        rotation = f' transform="rotate({degrees} {x:.1f} {y:.1f})"' if degrees else ""
        self._lines.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{css_class}"{rotation}>{escape_text(text)}</text>'
        )

    def draw_arrow(self, path: SvgPath, head: Corners, width: float) -> None:
        """Draw a line and its arrowhead."""
        self._lines.append(f'<path d="{format_path(path)}" stroke-width="{width:.2f}"/>')
        self._lines.append(f'<polygon points="{format_points(head)}"/>')

    def draw_box(
        self, x: float, y: float, width: float, height: float, css_class: str = "box", opacity: float = 1.0
    ) -> None:
        """Draw a rectangle."""
        light = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
        corners = ' rx="5"' if css_class == "box" else ""
        bounds = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self._lines.append(f'<rect {bounds}{corners} class="{css_class}"{light}/>')


def escape_text(text: str) -> str:
    """Make a text printable, and escape it for XML."""
    return escape(make_printable(text))


def format_path(path: SvgPath) -> str:
    """Write a path as the attribute `d` of SVG."""
    return "".join(f"{letter}{' '.join(f'{number:.1f}' for number in at)}" for letter, at in path)


def format_points(corners: Corners) -> str:
    """Write corners as the attribute `points` of SVG."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
