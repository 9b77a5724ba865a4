"""Accuracy by class of an evaluation: the least ones in the log, all in a table beside."""

import csv
import os
import pathlib

import numpy as np

import slim_data
from terngrad_tf.files import atomic_write
from terngrad_tf.training.log import log

FILE = "classes.csv"
_NUM_TOLD = 3


def tell_classes(
    by_class: np.ndarray, info: slim_data.DatasetInfo, eval_dir: str | os.PathLike
) -> None:
    """Logs the least accurate classes and writes all of them to classes.csv in `eval_dir`.

    Args:
        by_class: int array [classes, 2]: the examples of each class, and those that are right.
            Classes without any are left out.
        info: `slim_data.DatasetInfo`, which names the classes; those without a name are told by
            their numbers.
        eval_dir: folder of the evaluation; a table of an earlier one is replaced.
    """
    names = [""] * info.label_offset + list(info.labels)
    rows = [
        (number, names[number], int(examples), int(hits) / int(examples))
        for number, (examples, hits) in enumerate(by_class)
        if examples
    ]
    worst = sorted(rows, key=lambda row: row[3])[:_NUM_TOLD]
    told = ", ".join(f"{shown(number, name)} {accuracy:.4f}" for number, name, _, accuracy in worst)
    log(f"least accurate of {len(rows)} classes: {told}")
    with (
        atomic_write(pathlib.Path(eval_dir, FILE)) as beside,
        open(beside, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["class", "name", "examples", "precision_at_1"])
        writer.writerows((*row[:3], f"{row[3]:.6f}") for row in rows)


def shown(number: int, name: str) -> str:
    """A class in a line for people: its name, or its number where nothing names it."""
    return name or f"class {number}"
