"""A process that has imported `nse` and forks for each command, with the standard streams that it is told.

Reads a JSON object on each line: `words`, the command, and `streams`, for 0, 1 and 2 the path of a file, or
null for a stream that is closed. Answers with the exit code of each.
"""

import json
import os
import sys

MODES = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)


def become(words, streams):
    """Run a command as a process does that was started with these streams."""
    from nse.cli import main as cli

    files = [path and os.open(path, mode) for path, mode in zip(streams, MODES, strict=True)]
    for number, (name, file) in enumerate(zip(("stdin", "stdout", "stderr"), files, strict=True)):
        stream = None
        if file is None:
            os.close(number)
        else:
            os.dup2(file, number)
            os.close(file)
            stream = os.fdopen(number, "w" if number else "r", 1 if number == 2 else -1, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["nse", *words]
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


def end(code):
    """End as Python does: what is left is written, and that may fail."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        code = 120
    os._exit(code)


if __name__ == "__main__":
    import torch
    from typer.testing import CliRunner

    import nse.cli.pipeline
    import nse.inference.folder
    import nse.inference.tracing
    import nse.train.evaluate
    import nse.train.run
    import nse.viz.report
    import nse.viz.terminal  # noqa: F401
    from nse.cli import main as cli

    torch.set_num_threads(1)
    CliRunner().invoke(cli.app, ["recipes"])  # imports more
    answers = os.fdopen(os.dup(1), "w")
    questions = os.fdopen(os.dup(0))
    for line in iter(questions.readline, ""):
        asked = json.loads(line)
        child = os.fork()
        if not child:
            end(become(asked["words"], asked["streams"]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answers.write(f"{code}\n")
        answers.flush()
    os._exit(0)  # it takes seconds to take apart all that was imported
