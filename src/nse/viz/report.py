"""The page of a trace as one HTML file that works offline."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from nse.viz.trace import MemoryTrace

MODULES = tuple(f"{name}.js" for name in ("trace", "answer", "graph", "heat", "download", "app"))
FILES = {"index.html": "text/html", "page.css": "text/css"} | dict.fromkeys(MODULES, "text/javascript")
"""Files of the page and their media types; a module comes after those that it imports."""

CHARSET = '<meta charset="utf-8">'
STYLE = '<link rel="stylesheet" href="page/page.css">'
SCRIPT = '<script type="module" src="page/app.js"></script>'
"""Tags of index.html that `render_html` replaces."""

_IMPORT = re.compile(r'^import [^;]*? from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const )", re.MULTILINE)


def read_page_file(name: str) -> str:
    """Read one of `FILES`."""
    return resources.files("nse.viz").joinpath("page").joinpath(name).read_text("utf-8")


def bundle_modules() -> str:
    """Join all modules into one script; their names are unique, so imports and exports can be removed."""
    return "".join(_EXPORT.sub("", _IMPORT.sub("", read_page_file(name))) for name in MODULES)


def render_html(trace: MemoryTrace) -> str:
    """Write the page with a trace in it, under a policy that allows only its own script and style."""
    style, script = read_page_file("page.css"), bundle_modules()
    sources = f"script-src {hash_source(script)}; style-src {hash_source(style)}; img-src data:"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    # "</script>" in a word would end the element, so "<" is escaped.
    data = trace.to_json().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    html = read_page_file("index.html")
    for tag, replacement in {
        CHARSET: f'{CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        STYLE: f"<style>{style}</style>",
        SCRIPT: f'<script type="application/json" id="trace">{data}</script>\n'
        f'<script type="module">{script}</script>',
    }.items():
        before, after = html.split(tag)
        html = f"{before}{replacement}{after}"
    return html


def hash_source(text: str) -> str:
    """Return the source expression that allows an inline script or style in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
