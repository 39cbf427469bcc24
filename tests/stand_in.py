"""Programs that stand for others when the commands of a document are run: `stand_in.py NAME WORD...`.

They do what those do, with tiny sizes where that takes minutes, and reach nothing but this machine.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import forking

ROOT = Path(__file__).parents[1]
SERVED = Path(".served")

SMALL = {
    "logic": ["model.size=8", "data.train=60", "data.test=30", "data.unseen=30", "data.dev=30"],
    "own": ["model.size=8"],
    "wikiqa/mma-attention": ["model.size=8"],
}
"""By a recipe's name or its first part; others are small enough with the data that is made up."""

TINY = {
    "benchmarks/access.py": ["--out", "access.json"],
    "benchmarks/answers.py": ["--rounds", "1", "--only", "8", "--out", "answers.json"],
    "benchmarks/http_speed.py": ["--seconds", "0.5", "--rounds", "1", "--clients", "2", "--out", "http.json"],
}
"""More words for a script of the project; what it writes stays in the folder of the document."""


def nse(*words):
    """With tiny sizes where it would take minutes; a server goes on until the document ends."""
    if words[0] in ("demo", "bench"):
        words += ("--quick",)
    if words[0] == "train":
        words += small(words[1])
    if "--ray" in words:
        words += ("--ray", "local", "--workers", "1")
    if words[0] == "serve":
        serve(*words[1:])
    else:
        first = PUBLISH if words[:2] == ("data", "fetch") else ""
        sys.exit(forking.run_here(os.environ["NSE_FORKS"], "-m", "nse", *words, first=first))


def small(recipe):
    """Words that let a recipe train in a second."""
    sets = ["train.epochs=1", *SMALL.get(recipe, SMALL.get(recipe.split("/")[0], []))]
    return tuple(word for each in sets for word in ("--set", each))


PUBLISH = "import stand_in; stand_in.publish()"


def publish():
    """Let every address have what lies in DATA, and the catalogue its size and checksum."""
    import urllib.request
    from dataclasses import replace
    from urllib.response import addinfourl

    from nse.data import catalogue
    from nse.data.sources import compute_checksums

    class Server(urllib.request.HTTPSHandler):
        def https_open(self, request):
            [file] = Path("DATA").rglob(Path(request.full_url).name)
            answer = addinfourl(file.open("rb"), {}, request.full_url, 200)
            answer.msg = "OK"
            return answer

    def made_up(download):
        file = "DATA" / Path(download.file)
        return replace(download, size=file.stat().st_size, sha256=compute_checksums([file])[0])

    published = catalogue.get_downloads
    catalogue.get_downloads = lambda name: tuple(map(made_up, published(name)))
    urllib.request.install_opener(urllib.request.build_opener(Server))


def serve(*words):
    """In the background, as in a second terminal, until the next one or the end of the document."""
    from serve.running import asked

    stop()
    program = [sys.executable, "-m", "nse", "serve", *words, "--port", "0", "--workers", "1"]
    with Path("served.log").open("w") as log:
        server = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    found = re.search(r"http://\S+", server.stdout.readline().decode())
    assert found, Path("served.log").read_text()
    SERVED.write_text(f"{server.pid} {found[0]}")
    assert asked(found[0], "/")[0] == (401 if "--api-key-file" in words else 200)


def stop():
    """End the server that a document started, if it did."""
    if SERVED.exists():
        with suppress(ProcessLookupError):
            os.kill(int(SERVED.read_text().split()[0]), signal.SIGTERM)


def curl(*words):
    """Ask the server that was started last; an error is a failure."""
    from serve.running import asked

    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    given = parser.parse_args(words)
    headers = dict(each.split(": ", 1) for each in given.headers)
    headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    path = given.address.removeprefix("http://127.0.0.1:8000")
    address = SERVED.read_text().split()[1]
    status, _, body = asked(address, path, given.data and given.data.encode(), headers)
    print(body.decode())
    assert status < 400, status


def torchrun(*words):
    """Two processes on this machine."""
    start = words.index("-m")
    options, program = words[:start], words[start:]
    here = ["--nnodes", "1", "--nproc-per-node", "2", "--rdzv-endpoint", "localhost:0"]
    run("-m", "torch.distributed.run", *options, *here, *program, *small(program[3]))


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
    """A script of the project, or a line of code."""
    if words[0] != "-c":
        words = (str(ROOT / words[0]), *words[1:], *TINY.get(words[0], []))
    run(*words)


def run(*words):
    """Become this Python with these words."""
    os.execv(sys.executable, [sys.executable, *words])


PROGRAMS = {program.__name__: program for program in (nse, torchrun, curl, make, pip, python)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
