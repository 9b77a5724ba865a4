"""The command `terngrad`, a single name for the project's command-line programs."""

import importlib
import shlex
import sys
from collections.abc import Sequence

from slim_data.common.closed_output import ending_with_its_reader
from terngrad_tf.bin.command import config_file
from terngrad_tf.bin.command.commands import ALL, COMMANDS, EXPERIMENTS, find
from terngrad_tf.bin.command.parsing import fail
from terngrad_tf.common.arguments import did_you_mean, shown
from terngrad_tf.common.last_line import STATUS_INTERRUPTED
from terngrad_tf.version import __version__


def main(argv: Sequence[str]) -> int:
    """Runs a subcommand; returns the exit status, unless the program ends the process."""
    words, path = list(argv[1:]) or ["--help"], config_file.path_of_folder()
    if words[0] == "--config":
        if not words[1:]:
            return fail("terngrad", "--config must be followed by a file and a command")
        path, words = words[1], words[2:] or ["--help"]
    name, rest = find(words)
    if name in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if name == "--version":
        print(f"terngrad {__version__}")
        return 0
    if name not in ALL:
        hint = f"{did_you_mean(name, ALL)}; see terngrad --help"
        return fail("terngrad", f"no command {shown(name)}{hint}")
    if path is not None and name == "config":
        rest = ["--file", path, *rest]
    elif path is not None and name not in ("completion", "explain"):
        try:
            given = config_file.arguments(path, config_file.read(path).get(name, {}), name)
        except ValueError as error:
            return fail("terngrad", error)
        except OSError as error:
            return fail("terngrad", f"{path}: {error.strerror}")
        if given:
            print(f"terngrad: with {shlex.join(given)} of {path}", file=sys.stderr)
        rest = [*given, *rest]
    program = importlib.import_module(ALL[name].module)
    if ALL[name].takes_arguments:
        try:
            return program.run(rest)
        except KeyboardInterrupt:
            print(f"terngrad {name}: interrupted", file=sys.stderr, flush=True)
            return STATUS_INTERRUPTED
    # Programs show this as their name.
    sys.argv = [f"terngrad {name}", *rest]
    program.run()
    return 0


def _help():
    width = max(map(len, ALL))

    def lines(commands):
        return "".join(f"  {name:{width}}  {command.text}\n" for name, command in commands.items())

    return (
        "usage: terngrad [--config FILE] COMMAND [arguments]\n\n"
        f"Commands; `terngrad COMMAND --help` explains each:\n{lines(COMMANDS)}\n"
        f"TernGrad's and MindSpore's experiments:\n{lines(EXPERIMENTS)}"
    )


def run() -> None:
    """Entry point of the console command."""
    with ending_with_its_reader():
        sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
