"""The page of a trace as one file that works from disk: everything in it, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from nse.viz.trace import MemoryTrace

MODULES = tuple(f"{name}.js" for name in ("trace", "answer", "graph", "heat", "download", "app"))
FILES = {"index.html": "text/html", "page.css": "text/css"} | dict.fromkeys(MODULES, "text/javascript")
"""The files of the page and their types; each module after those that it imports."""

FIRST = '<meta charset="utf-8">'
STYLE = '<link rel="stylesheet" href="page/page.css">'
SCRIPT = '<script type="module" src="page/app.js"></script>'
"""Where the policy goes, and where the page names its other files."""

_IMPORT = re.compile(r'^import [^;]*? from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const )", re.MULTILINE)


def page(name: str) -> str:
    """Read a file of the page, one of `FILES`."""
    return resources.files("nse.viz").joinpath("page").joinpath(name).read_text("utf-8")


def bundled() -> str:
    """Make all modules one: their names do not clash, so that leaving out imports and exports is enough."""
    return "".join(_EXPORT.sub("", _IMPORT.sub("", page(name))) for name in MODULES)


def html(trace: MemoryTrace) -> str:
    """Write the page with a trace in it. Its policy allows this script and this style alone."""
    style, script = page("page.css"), bundled()
    ours = f"script-src {source(script)}; style-src {source(style)}; img-src data:"
    policy = f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"
    # In a script element, what could end it must not stand as it is; in JSON it can be written otherwise.
    data = trace.to_json().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    whole = page("index.html")
    inside = f'<script type="application/json" id="trace">{data}</script>\n'
    for old, new in {
        FIRST: f'{FIRST}\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        STYLE: f"<style>{style}</style>",
        SCRIPT: f'{inside}<script type="module">{script}</script>',
    }.items():
        before, after = whole.split(old)
        whole = f"{before}{new}{after}"
    return whole


def source(text: str) -> str:
    """Tell how a policy allows an inline script or style: by its hash."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
