"""A process that has imported `nse` and forks for each command: a hundred of them import it once."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def listening(place):
    """The process, at a socket of this path, for as long as the block lasts."""
    program = [sys.executable, __file__, str(place)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.terminate()


def asked(place, *words):
    """Run a command with the folder, the environment and the streams of this process; tells how it ended."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        socket.send_fds(line, [b"\n"], [0, 1, 2])
        line.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\n")
        return int(line.makefile().readline())


def listen(place):
    """Fork for whoever asks."""
    import nse.cli.pipeline
    import nse.data.prepare
    import nse.inference.folder
    import nse.train.demo
    import nse.train.evaluate  # noqa: F401

    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
        while True:
            line, _ = door.accept()
            if not os.fork():
                break
            line.close()
    answer(line)


def answer(line):
    """Fork once more for the command, so that somebody sees how it ends, be it by a signal."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(line, 1, 3)
    process = multiprocessing.Process(target=become, args=[streams, *json.loads(line.makefile().readline())])
    process.start()
    process.join()
    line.sendall(f"{process.exitcode}\n".encode())
    os._exit(0)  # it takes a second to take apart all that was imported


def become(streams, words, folder, environment):
    """Be the command that was asked for, with its streams."""
    import stand_in

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing put another in its place
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    stand_in.command(*words)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    listen(sys.argv[1])
