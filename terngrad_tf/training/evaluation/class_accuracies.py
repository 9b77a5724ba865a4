"""Per-class accuracies of an evaluation: the lowest in the log, all in classes.csv."""

import csv
import os
import pathlib

import numpy as np

import slim_data
from terngrad_tf.common.files import atomic_write
from terngrad_tf.training.log import log

FILE = "classes.csv"
_NUM_SHOWN = 3


def tell_classes(
    by_class: np.ndarray, info: slim_data.DatasetInfo, eval_dir: str | os.PathLike
) -> None:
    """Logs the least accurate classes and writes all of them to classes.csv in `eval_dir`.

    Args:
        by_class: int array [classes, 2]: examples of each class, and correct ones. Classes without
            examples are omitted.
    """
    names = [""] * info.label_offset + list(info.labels)
    rows = [
        (number, names[number], int(examples), int(hits) / int(examples))
        for number, (examples, hits) in enumerate(by_class)
        if examples
    ]
    worst = sorted(rows, key=lambda row: row[3])[:_NUM_SHOWN]
    lowest = ", ".join(f"{shown(number, name)} {value:.4f}" for number, name, _, value in worst)
    log(f"least accurate of {len(rows)} classes: {lowest}")
    with (
        atomic_write(pathlib.Path(eval_dir, FILE)) as beside,
        open(beside, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["class", "name", "examples", "precision_at_1"])
        writer.writerows((*row[:3], f"{row[3]:.6f}") for row in rows)


def shown(number: int, name: str) -> str:
    """Returns a class's name for a message, or its number if it has no name."""
    return name or f"class {number}"
