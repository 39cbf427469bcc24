"""Starts Python programs by forking a process that has imported `nse`: in milliseconds, not in seconds.

`run` and `Popen` are those of `subprocess`. They take the words that follow `python`: `["-m", "nse", ...]`,
`["-c", code]` or `[script, ...]`. Tests of how Python starts, and of what is imported, use `subprocess`.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path

LINUX = sys.platform == "linux"  # elsewhere programs start as usual
PR_SET_CHILD_SUBREAPER = 36  # of prctl(2): whose child a process becomes when its parent ends


class Popen(subprocess.Popen):
    """A program in a fork of the process that has imported `nse`, as a child of this one.

    Args:
        first: Python to run before the program.
        closed: Numbers of standard streams that are closed from the start.
    """

    def __init__(self, words, first="", closed=(), **settings):
        self.first, self.closed = first, list(closed)
        if first and not LINUX:
            words = ["-c", f"{first}\nfrom nse.cli.main import main; main()", *words[2:]]
        super().__init__([sys.executable, *map(str, words)], **settings)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        if not LINUX:
            return super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
        *_, read_in, write_in, read_out, write_out, read_error, write_error = rest[:9]
        given = [read_in, write_out, write_error]
        streams = [number if file == -1 else file for number, file in enumerate(given)]
        request = {
            "words": args[1:],
            "first": self.first,
            "closed": self.closed,
            "folder": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
        }
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            with ask(get_address(), request, streams) as answer:
                self.pid = int(answer.readline())
                answer.read()  # until its parent has ended
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        return self._close_pipe_fds(read_in, write_in, read_out, write_out, read_error, write_error)


def run(words, timeout=120, **settings):
    """Run a program to its end with captured output; as `subprocess.run` without `check`."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    with Popen(words, **settings) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run_side_by_side(words, processes=2, timeout=120, env=None, **settings):
    """Run a script in several processes that find each other as those of torchrun do."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "GROUP_RANK": 0}
    shared |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    started = []
    for rank in range(processes):
        numbers = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        started.append(Popen(words, env={**(env or os.environ), **numbers}, **settings))
    try:
        stdout, stderr = zip(*(process.communicate(timeout=timeout) for process in started), strict=True)
    finally:
        for process in started:
            process.kill()
    exit_code = max(abs(process.returncode) for process in started)
    return subprocess.CompletedProcess(started[0].args, exit_code, "".join(stdout), "".join(stderr))


@cache
def get_address():
    """Start the process that forks, once; returns the path of its socket."""
    folder = tempfile.TemporaryDirectory(prefix="nse-forks-")
    path = f"{folder.name}/socket"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, __file__, path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    atexit.register(lambda: (process.communicate(), folder.cleanup()))
    return path


def ask(path, request, streams):
    """Send a request and the three standard streams; returns a file of the answer."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(line, [b"\n"], streams)
        line.sendall(json.dumps(request).encode() + b"\n")
        return line.makefile()


def run_here(path, *words, first=""):
    """Run a program with the folder, the environment and the streams of this process; returns its exit code.

    For a process that is not the parent of the one that forks.
    """
    request = {"words": words, "first": first, "folder": os.getcwd(), "environment": dict(os.environ)}
    with ask(path, {**request, "closed": [], "wait": True}, [0, 1, 2]) as answer:
        return int(answer.read().split()[1])


def listen(path):
    """Fork for whoever asks, until standard input ends."""
    import torch._dynamo  # as an optimizer does, and it takes seconds
    from typer.testing import CliRunner

    import nse.cli.pipeline
    import nse.data.prepare
    import nse.inference.tracing
    import nse.serve.server
    import nse.train.demo
    import nse.train.evaluate
    import nse.viz.report
    import nse.viz.terminal  # noqa: F401
    from nse.cli import main as cli

    torch.set_num_threads(1)
    CliRunner().invoke(cli.app, ["recipes"])  # imports more
    gc.freeze()  # or a collection in a fork would copy what it looks at
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        print("ready", flush=True)
        while door in select.select([door, sys.stdin], [], [])[0]:
            line, _ = door.accept()
            helper = os.fork()
            if not helper:
                door.close()
                answer(line)
            os.waitpid(helper, 0)
            line.close()
    os._exit(0)


def answer(line):
    """Read a request and fork once more for its program; say its number, and perhaps how it ends."""
    _, streams, _, _ = socket.recv_fds(line, 1, 3)
    request = json.loads(line.makefile().readline())
    wait = request.pop("wait", False)
    if wait and os.fork():
        os._exit(0)
    child = os.fork()
    if not child:
        line.close()
        become(streams, **request)
    line.sendall(f"{child}\n".encode())
    if wait:
        line.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
    os._exit(0)


def become(streams, words, first, closed, folder, environment):
    """Run a program as Python does; at the end, do not take apart all that was imported."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # or it would be that of the first environment
    for number, (name, file) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(file, number)
        os.close(file)
        open_stream(number, name, number in closed)
    code = 1
    try:
        execute(words, first)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        code = 120
    os._exit(code)


def open_stream(number, name, is_closed):
    """Open a standard stream of Python, or close its file."""
    stream = None
    if is_closed:
        os.close(number)
    else:
        settings = {"encoding": os.environ.get("PYTHONIOENCODING", "utf-8")}
        settings |= {"errors": "strict" if number < 2 else "backslashreplace"}
        mode, buffering = "w" if number else "r", 1 if number == 2 else -1
        stream = open(number, mode, buffering, closefd=False, **settings)  # noqa: SIM115
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def execute(words, first):
    """Run what Python would run for these words."""
    scope = {"__name__": "__main__"}
    exec(first, scope)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__")
    elif words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(words[1], scope)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    listen(sys.argv[1])
