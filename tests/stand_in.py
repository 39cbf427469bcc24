"""Replacements for the programs in the commands of a document: `stand_in.py NAME WORD...`.

They do the same with tiny sizes, and connect to no other machine.
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
"""Settings by a recipe's name or its first part; others are small enough with the made-up data."""

TINY = {
    "benchmarks/access.py": ["--out", "access.json"],
    "benchmarks/answers.py": ["--rounds", "1", "--only", "8", "--out", "answers.json"],
    "benchmarks/http_speed.py": ["--seconds", "0.5", "--rounds", "1", "--clients", "2", "--out", "http.json"],
}
"""Additional arguments of a script; its output stays in the folder of the document."""


def nse(*words):
    """Run a command, with tiny sizes if it would take minutes; a server runs until the document ends."""
    if words[0] in ("demo", "bench"):
        words += ("--quick",)
    if words[0] == "train":
        words += list_small_settings(words[1])
    if "--ray" in words:
        words += ("--ray", "local", "--workers", "1")
    if words[0] == "serve":
        serve(*words[1:])
    else:
        first = PUBLISH if words[:2] == ("data", "fetch") else ""
        sys.exit(forking.run_here(os.environ["NSE_FORKS"], "-m", "nse", *words, first=first))


def list_small_settings(recipe):
    """List the options that let a recipe train in a second."""
    sets = ["train.epochs=1", *SMALL.get(recipe, SMALL.get(recipe.split("/")[0], []))]
    return tuple(word for setting in sets for word in ("--set", setting))


PUBLISH = "import stand_in; stand_in.publish()"


def publish():
    """Serve the files of DATA at every address, and put their sizes and checksums into the catalogue."""
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

    def replace_download(download):
        file = "DATA" / Path(download.file)
        return replace(download, size=file.stat().st_size, sha256=compute_checksums([file])[0])

    published = catalogue.get_downloads
    catalogue.get_downloads = lambda name: tuple(map(replace_download, published(name)))
    urllib.request.install_opener(urllib.request.build_opener(Server))


def serve(*words):
    """Start a server in the background, which runs until the next one or the end of the document."""
    from serve.running import send

    stop()
    program = [sys.executable, "-m", "nse", "serve", *words, "--port", "0", "--workers", "1"]
    with Path("served.log").open("w") as log:
        server = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    address = re.search(r"http://\S+", server.stdout.readline().decode())
    assert address, Path("served.log").read_text()
    SERVED.write_text(f"{server.pid} {address[0]}")
    assert send(address[0], "/")[0] == (401 if "--api-key-file" in words else 200)


def stop():
    """Stop the server of a document, if there is one."""
    if SERVED.exists():
        with suppress(ProcessLookupError):
            os.kill(int(SERVED.read_text().split()[0]), signal.SIGTERM)


def curl(*words):
    """Send a request to the last server; fail if the answer is an error."""
    from serve.running import send

    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    args = parser.parse_args(words)
    headers = dict(header.split(": ", 1) for header in args.headers)
    headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    path = args.address.removeprefix("http://127.0.0.1:8000")
    address = SERVED.read_text().split()[1]
    status, _, body = send(address, path, args.data and args.data.encode(), headers)
    print(body.decode())
    assert status < 400, status


def torchrun(*words):
    """Run two processes on this machine."""
    start = words.index("-m")
    options, program = words[:start], words[start:]
    here = ["--nnodes", "1", "--nproc-per-node", "2", "--rdzv-endpoint", "localhost:0"]
    run("-m", "torch.distributed.run", *options, *here, *program, *list_small_settings(program[3]))


def make(*words):
    """Print the commands of a target without running them."""
    path = os.environ["PATH"].partition(":")[2]  # without the stand-ins
    subprocess.run(["make", "-n", "-C", str(ROOT), *words], env={**os.environ, "PATH": path}, check=True)


def pip(*words):
    """Check that the extras exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert words[0] == "install"
    named = [name for word in words for names in re.findall(r"\[(.*)\]", word) for name in names.split(",")]
    assert set(named) <= set(extras), named


def python(*words):
    """Run a script of the project, or a line of code."""
    if words[0] != "-c":
        words = (str(ROOT / words[0]), *words[1:], *TINY.get(words[0], []))
    sys.exit(forking.run_here(os.environ["NSE_FORKS"], *words))


def run(*words):
    """Replace this process by Python with these arguments."""
    os.execv(sys.executable, [sys.executable, *words])


PROGRAMS = {program.__name__: program for program in (nse, torchrun, curl, make, pip, python)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
