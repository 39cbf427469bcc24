"""Programs that stand for others when the commands of a document are run: `stand_in.py NAME WORD...`."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

SIZES = ["train.epochs=1", "model.size=8"]
CORPUS = ["data.train=60", "data.test=30", "data.unseen=30", "data.dev=30"]


def nse(*words):
    """With tiny sizes where it would take minutes; a server is asked once, then stopped."""
    if words[0] in ("demo", "bench"):
        words += ("--quick",)
    if words[0] == "train":
        for each in [*SIZES, *(CORPUS if words[1].startswith("logic/") else [])]:
            words += ("--set", each)
    if words[0] == "serve":
        from serve.running import asked, running

        with running(words[1], *words[2:]) as (address, _):
            assert asked(address, "/")[0] == 200
        return
    from nse.cli import main

    sys.argv = ["nse", *words]
    main()


def make(*words):
    """What it would do, without doing it."""
    path = os.environ["PATH"].partition(":")[2]  # without the stand-ins
    subprocess.run(["make", "-n", "-C", str(ROOT), *words], env={**os.environ, "PATH": path}, check=True)


def pip(*words):
    """Whether it would install extras that there are."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert words[0] == "install"
    named = [each for word in words for found in re.findall(r"\[(.*)\]", word) for each in found.split(",")]
    assert set(named) <= set(extras), named


def python(*words):
    """A script of the project."""
    sys.argv = list(words)
    runpy.run_path(str(ROOT / words[0]), run_name="__main__")


PROGRAMS = {program.__name__: program for program in (nse, make, pip, python)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
