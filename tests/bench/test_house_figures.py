"""What `benchmarks/house.py` counts, on a tree that is made up."""

import pytest

from benchmarks.house import House

FILES = {
    "pyproject.toml": '[[tool.importlinter.contracts]]\nlayers = ["cli", "inference", "errors"]\n',
    "README.md": "```python\nimport nse\nmodel = nse.load('snli')\n```\n",
    "docs/other.md": "```python\nfrom nse.inference import kinds\nkinds.predict('runs/mine', 'a')\n```\n",
    "tests/test_one.py": "def test_one(): ...\nasync def test_two(): ...\ndef helper(): ...\n",
    "src/nse/pretrained/snli/config.json": "{}",
    "src/nse/errors.py": "class NSEError(Exception): ...\n",
    "src/nse/__init__.py": "if TYPE_CHECKING:\n    from nse.inference.model import load\n",
    "src/nse/inference/__init__.py": '"""A room."""\n',
    "src/nse/inference/kinds.py": "KINDS = {'pair': 1, 'sentence': 2, 'document': 3}\n1 == 'pair'\n",
    "src/nse/inference/model.py": (
        "from nse.inference import kinds\nfrom nse.ops import dispatch\n"
        "class Model(NamedTuple):\n    def predict(self): ...\n    def close(self): ...\n"
        "def load():\n    from nse.errors import NSEError\n    return 'pair'\n"
    ),
    "src/nse/ops/dispatch.py": "x = 1\n\n",
    "src/nse/cli/__init__.py": "",
    "docs/reading-order.md": "",
    "CONTRIBUTING.md": "",
    "CHANGELOG.md": "",
    "SECURITY.md": "",
    "src/nse/cli/ask.py": (
        "from nse.inference import model\n"
        "ALIASES = {'snli': 'pair', 'sst': 'sentence', 'logic': 'pair'}\n"
        "COMMANDS = {'predict': 1, 'rank': 2, 'translate': 3}\n"
        "def describe_predictions(kind):\n"
        "    if kind == 'pair' or kind.name in ('ranking', 'x') or kind is PAIR or 'ranking' in kind:\n"
        "        return\n"
        "    match kind:\n"
        "        case 'document' | 'other': ...\n"
    ),
}


@pytest.fixture
def house(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return House(tmp_path)


def test_it_counts_what_is_there(house):
    result = house.measure()
    assert result["root modules"] == 1
    assert result["levels of the import contract"] == 3
    assert result["longest chain of imports"] == 3  # cli, inference, errors or nn
    assert house.closure("nse.inference.model") == {
        "nse.inference.model",
        "nse.inference.kinds",
        "nse.ops.dispatch",
    }
    assert (result["modules that nse.load imports"], result["lines that nse.load imports"]) == (3, 12)
    assert result["taxonomies"] == 2  # aliases are none
    assert len(house.comparisons()) == result["comparisons of their names"] == 4
    assert house.verbs() == [("cli/ask.py", "describe_predictions"), ("inference/model.py", "predict")]
    assert house.doors() == {"nse.inference.model": True, "nse.inference.kinds": False}
    sizes = ("functions", "classes", "records", "longest function")
    assert tuple(result[name] for name in sizes) == (4, 2, 1, 5)
    assert result["test functions"] == 2
