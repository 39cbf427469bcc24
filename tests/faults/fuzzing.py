"""Broken input without end: what hypothesis makes of good files, and what may come of it."""

import json
import math
import re

from hypothesis import strategies as st

import nse
from nse.errors import ConfigError, ModelError, RunError
from nse.inference import folder as hub
from nse.tasks import load_recipe
from nse.tasks.recipe import find_recipe_file

SUMS = "SHA256SUMS"
FILES = ("config.json", "model.safetensors", "vocabulary.txt")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def damaged(draw, content):
    """Bytes with something flipped, cut off, put in, doubled, or all of it replaced."""
    at = draw(st.integers(0, len(content)))
    end = min(len(content), at + draw(st.integers(0, 40)))
    some = draw(st.binary(max_size=40))
    return draw(
        st.sampled_from(
            [
                content[:at] + some + content[end:],
                content[:at],
                content[at:],
                content[:end] + content[at:],
                some,
            ]
        )
    )


@st.composite
def flipped(draw, content):
    """Bytes with one bit flipped."""
    bit = draw(st.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@st.composite
def edited(draw, data):
    """A mapping with one value replaced, removed or added, at any depth."""
    data = json.loads(json.dumps(data))
    parent = data
    while True:
        key = draw(st.sampled_from([*sorted(parent), "new"]))
        inner = parent.get(key)
        if isinstance(inner, dict) and draw(st.booleans()):
            parent = inner
            continue
        if draw(st.booleans()):
            parent[key] = draw(JSON | st.integers(-(1 << 40), 1 << 40))
        else:
            parent.pop(key, None)
        return json.dumps(data).encode()


@st.composite
def folders(draw, files):
    """The files of a model folder, one or two of which are not what they were.

    Sometimes there are no checksums, or hardly any such folder would load.
    """
    changed_files = files | ({SUMS: None} if draw(st.booleans()) else {})
    for name in draw(st.lists(st.sampled_from(FILES), min_size=1, max_size=2, unique=True)):
        choices = [damaged(changed_files[name])]
        if name == "config.json":
            choices.append(edited(json.loads(files[name])))
        content = draw(st.one_of(choices) | st.none())
        changed_files[name] = content
    return changed_files


def try_folder(files, folder):
    """Load a folder of these files (None: missing): a model that answers, or a message. True if it loaded."""
    write_folder(files, folder)
    try:
        loaded = hub.load(folder)
        if loaded.config.kind == "pair" and len(loaded.config.labels) > 1:
            (row,) = loaded.predict([("all dogs bark", "some dogs bark")])
            assert all(math.isfinite(chance) for chance in row["probabilities"].values())
    except (ModelError, RunError) as error:
        if not str(error):
            raise
        return False
    return True


@st.composite
def plausible(draw, files):
    """The files of a model folder that looks right, but one bit, two lines or one number differ."""
    name = draw(st.sampled_from(FILES))
    content = files[name]
    if name == "model.safetensors":
        content = draw(flipped(content))
    elif name == "vocabulary.txt":
        lines = content.splitlines(keepends=True)
        a, b = draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True))
        lines[a], lines[b] = lines[b], lines[a]
        content = b"".join(lines)
    else:
        number = draw(st.sampled_from(list(re.finditer(rb"(?<=: )-?\d+(\.\d+)?", content))))
        other = draw(st.sampled_from([b"0", b"1", b"2", b"3", b"4", b"8", b"0.25", b"0.5", b"32"]))
        content = content[: number.start()] + other + content[number.end() :]
    return files | {name: content}


TEXTS = [("all dogs bark", "some dogs bark"), ("do not dance", "that"), ("all dogs " * 40, "bark " * 40)]


def try_plausible(files, folder):
    """Gives a function from files to what came of them: "refused", or "same" answers as of the good files."""
    write_folder(files, folder)
    good = nse.load(folder).predict(TEXTS)

    def attempt(args):
        write_folder(args, folder)
        try:
            answers = nse.load(folder).predict(TEXTS)
        except (ModelError, RunError) as error:
            if not str(error):
                raise
            return "refused"
        assert answers == good, [name for name in FILES if args[name] != files[name]]
        return "same answers"

    return attempt


def write_folder(files, folder):
    """Write these files, and remove what is None."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if content is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(content)


RECIPES = ("logic/nse", "snli/best", "wikiqa/mma-attention", "multi30k/best", "aclimdb/nse-nse")


@st.composite
def recipes(draw):
    """A recipe's text that is not what it was, and an assignment."""
    good = find_recipe_file(draw(st.sampled_from(RECIPES))).read_bytes()
    values = st.text(max_size=12) | JSON.map(lambda value: json.dumps(value))
    keys = st.sampled_from(
        ["seed", "model.size", "train", "train.lr", "model.encoder", "task", "a.b"]
    ) | st.text(max_size=8)
    return draw(damaged(good)), f"{draw(keys)}={draw(values)}"


def try_recipe(content, assignment, file):
    """Load a recipe: a recipe, or a message. True if it loaded."""
    file.write_bytes(content)
    try:
        load_recipe(str(file), [assignment])
    except ConfigError as error:
        if not str(error):
            raise
        return False
    return True
