"""The command `terngrad`, a single name for the project's command-line programs."""

import importlib
import sys
from collections.abc import Sequence

from terngrad_tf.arguments import did_you_mean, shown
from terngrad_tf.bin.commands import ALL, COMMANDS, EXPERIMENTS, find
from terngrad_tf.version import __version__

STATUS_ERROR = 2


def main(argv: Sequence[str]) -> int:
    """Runs a subcommand.

    Args:
        argv: command line, the program's name first.

    Returns:
        The exit status. Programs end the process themselves.
    """
    name, rest = find(list(argv[1:]) or ["--help"])
    if name in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if name == "--version":
        print(f"terngrad {__version__}")
        return 0
    if name not in ALL:
        hint = f"{did_you_mean(name, ALL)}; see terngrad --help"
        print(f"terngrad: error: no command {shown(name)}{hint}", file=sys.stderr)
        return STATUS_ERROR
    program = importlib.import_module(ALL[name].module)
    if ALL[name].takes_arguments:
        return program.run(rest)
    # Programs tell the first of these words as their name.
    sys.argv = [f"terngrad {name}", *rest]
    program.run()
    return 0


def _help():
    width = max(map(len, ALL))

    def lines(commands):
        return "".join(f"  {name:{width}}  {command.text}\n" for name, command in commands.items())

    return (
        "usage: terngrad COMMAND [arguments]\n\n"
        f"Commands; `terngrad COMMAND --help` explains each:\n{lines(COMMANDS)}\n"
        f"TernGrad's and MindSpore's experiments:\n{lines(EXPERIMENTS)}"
    )


def run() -> None:
    """Entry point of the console command."""
    sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
