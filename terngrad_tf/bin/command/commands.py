"""The name, module and purpose of each subcommand of `terngrad`."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand of `terngrad`; `text` is its purpose in `--help`.

    `run` of `module` takes the command line and returns the exit status if it `takes_arguments`;
    else it reads `sys.argv` and ends the process.
    """

    module: str
    text: str
    takes_arguments: bool = False


def _own(name, text):
    return Command(f"terngrad_tf.bin.command.{name}", text, takes_arguments=True)


COMMANDS = {
    "run": _own("run", "Start a script in every process of a cluster."),
    "stop": _own("stop", "End a run in the background."),
    "check": _own("check", "Tell whether machines can train together, and how fast."),
    "config": _own("config", "Write options of other commands to a file, which these then take."),
    "convert": Command("slim_data.download_and_convert_data", "Convert a data set to TFRecords."),
    "convert folder": Command(
        "slim_data.convert_image_folder", "Convert a folder of images, a sub-folder for each class."
    ),
    "validate": Command("slim_data.validate", "Check the TFRecord files of a data set."),
    "split": Command("slim_data.split", "Split a data set's files among workers."),
    "explain": _own("explain", "Explain an error message, and say what to do."),
    "quickstart": Command("terngrad_tf.bin.quickstart", "Train on digits, ternary and float."),
    "report": Command("terngrad_tf.bin.report", "Write a report of runs as one HTML file."),
    "export": Command("terngrad_tf.bin.export", "Write a trained network as a Keras model."),
    "predict": Command("terngrad_tf.bin.predict", "Classify images with a trained network."),
    "average": Command("terngrad_tf.bin.average_snapshots", "Average a run's weight snapshots."),
    "completion": _own("completion", "Complete commands and options in bash, zsh or fish."),
}
_DATASETS = {
    "mnist": "MNIST, or another data set of small grey images",
    "cifar10": "CIFAR-10",
    "imagenet": "ImageNet, or a folder of images",
    "flowers": "the flower photos, or a folder of images",
}
_TRAINING = {
    **{f"{name}_train": f"Train on {title}." for name, title in _DATASETS.items()},
    "mnist_distributed_train": "The same, with a process on each of several hosts.",
    "cifar10_distributed_train": "The same, with a process on each of several hosts.",
    "imagenet_distributed_train": "The same, with a process on each of several hosts.",
    **{f"{name}_eval": f"Evaluate the checkpoints of {name}_train." for name in _DATASETS},
    "resnet50_imagenet_stage_1": "Phase 1 of dimension-reduction training, on ImageNet.",
    "subspace_train": "Phase 2: train in the subspace of a run's snapshots.",
}
_DATA = {
    "build_image_data": "Convert folders of images, with a list of labels.",
    "build_imagenet_data": "Convert ImageNet's images.",
    "prepare_imagenet": "Unpack ImageNet's archives.",
    "prepare_flowers": "Unpack the archive of flower photos.",
    "find_records": "Convert a folder with train and val, unless that is done.",
}
EXPERIMENTS = {
    **{name: Command(f"terngrad_tf.bin.{name}", text) for name, text in _TRAINING.items()},
    **{name: Command(f"slim_data.{name}", text) for name, text in _DATA.items()},
}
ALL = {**COMMANDS, **EXPERIMENTS}


def find(words: list[str]) -> tuple[str, list[str]]:
    """Returns the subcommand at the start of a command line, and the words after it.

    Example:
        >>> find(["convert", "folder", "photos"])
        ('convert folder', ['photos'])
    """
    both = " ".join(words[:2])
    return (both, words[2:]) if both in ALL else (words[0], words[1:])
