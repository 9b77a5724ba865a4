"""The command `terngrad`, a single name for the project's command-line programs."""

import importlib
import sys
from collections.abc import Sequence

from terngrad_tf.arguments import did_you_mean, shown
from terngrad_tf.bin import check as check_command
from terngrad_tf.bin import run as run_command
from terngrad_tf.version import __version__

STATUS_ERROR = 2
# Name: (function of the command line, description).
_COMMANDS = {
    "run": (run_command.run, "Start a script in every process of a cluster."),
    "check": (check_command.run, "Check whether machines can train together, and how fast."),
}
# Name: (module whose `run` reads the command line from sys.argv, description).
_PROGRAMS = {
    "report": ("terngrad_tf.bin.report", "Write a report of runs as one HTML file."),
    "export": ("terngrad_tf.bin.export", "Write a trained network as a Keras model."),
    "predict": ("terngrad_tf.bin.predict", "Classify images with a trained network."),
    "average": ("terngrad_tf.bin.average_snapshots", "Average the weight snapshots of a run."),
    "convert": ("slim_data.download_and_convert_data", "Convert a data set to TFRecord files."),
    "validate": ("slim_data.validate", "Check the TFRecord files of a data set."),
    "split": ("slim_data.split", "Split a data set into shards for workers."),
    "quickstart": ("terngrad_tf.bin.quickstart", "Train on digits, ternary and float."),
}
_EXPERIMENTS = (
    *("mnist_train", "mnist_distributed_train", "mnist_eval"),
    *("cifar10_train", "cifar10_distributed_train", "cifar10_eval"),
    *("imagenet_train", "imagenet_distributed_train", "imagenet_eval"),
    *("flowers_train", "flowers_eval"),
    "resnet50_imagenet_stage_1",
    "subspace_train",
)


def main(argv: Sequence[str]) -> int:
    """Runs a subcommand.

    Args:
        argv: command line, the program's name first.

    Returns:
        The exit status. Programs end the process themselves.
    """
    name, *rest = argv[1:] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if name == "--version":
        print(f"terngrad {__version__}")
        return 0
    if name in _COMMANDS:
        return _COMMANDS[name][0](rest)
    if name in _PROGRAMS or name in _EXPERIMENTS:
        module = _PROGRAMS[name][0] if name in _PROGRAMS else f"terngrad_tf.bin.{name}"
        sys.argv = [f"terngrad {name}", *rest]
        importlib.import_module(module).run()
        return 0
    known = [*_COMMANDS, *_PROGRAMS, *_EXPERIMENTS]
    hint = f"{did_you_mean(name, known)}; see terngrad --help"
    print(f"terngrad: error: no command {shown(name)}{hint}", file=sys.stderr)
    return STATUS_ERROR


def _help():
    lines = [(name, text) for name, (_, text) in {**_COMMANDS, **_PROGRAMS}.items()]
    width = max(len(name) for name, _ in lines)
    commands = "".join(f"  {name:{width}}  {text}\n" for name, text in lines)
    experiments = "".join(f"  {name}\n" for name in _EXPERIMENTS)
    return (
        "usage: terngrad COMMAND [arguments]\n\n"
        f"Commands; `terngrad COMMAND --help` explains each:\n{commands}\n"
        f"TernGrad's and MindSpore's experiments:\n{experiments}"
    )


def run() -> None:
    """Entry point of the console command."""
    sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
