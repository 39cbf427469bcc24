"""The page as one file: complete, offline, and safe against scripts in words."""

import base64
import hashlib
import html
import json
import re

from nse.viz import report
from nse.viz.trace import MemoryTrace
from viz.made_traces import NASTY, own, trace


def parts(text):
    """Policy, style, data and script of a page."""
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    [data] = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', text, re.DOTALL)
    [script] = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    return html.unescape(policy), style, data, script


def test_the_page_contains_the_trace():
    one = trace(own([*NASTY, "</script>", "\u2028"]))
    _, _, data, _ = parts(report.render_html(one))
    assert json.loads(data) == one.as_dict()
    assert MemoryTrace.from_json(data).to_json() == one.to_json()
    assert "<" not in data


def test_the_policy_allows_only_the_script_and_style_of_the_page():
    policy, style, _, script = parts(report.render_html(trace(own(["a", "b"]))))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for name, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"


def test_the_page_loads_no_other_file():
    text = report.render_html(trace(own(["a", "b"])))
    assert 'src="' not in text
    assert re.findall(r'href="([^"]*)"', text) == ["data:,", "#answer"]
    _, style, _, script = parts(text)
    assert "@import" not in style
    assert "url(" not in style
    assert "import " not in script
    assert "export " not in script


def test_no_script_turns_a_string_into_html():
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in report.bundle_modules()


def test_the_files_of_the_page_are_under_100_kb():
    assert sum(len(report.read_page_file(name).encode()) for name in report.FILES) < 100_000
