"""Classifies image files with a run's network: `predict`."""

import csv
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

import slim_data
from slim_data.common.errors import DataError, DataErrors, printable
from terngrad_tf import models
from terngrad_tf.common.files import atomic_write
from terngrad_tf.training.configs.eval_config import PredictConfig
from terngrad_tf.training.errors import UserError, output_path, writing
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.evaluation.class_accuracies import shown
from terngrad_tf.training.input import data
from terngrad_tf.training.log import log, say
from terngrad_tf.training.network import pretrained
from terngrad_tf.training.storage import run_folder

_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp")
_HEADER = ("image", "rank", "class", "name", "probability")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Result of a network for an image.

    Args:
        classes: numbers of the likeliest classes, the likeliest first.
        names: names of these classes, "" if unknown.
        probabilities: softmax of the logits, for these classes.
    """

    image: str
    classes: tuple[int, ...]
    names: tuple[str, ...]
    probabilities: tuple[float, ...]


def predict(config: PredictConfig, paths: Sequence[str | os.PathLike[str]]) -> list[Prediction]:
    """Prints the likeliest classes of images, and writes them as a table.

    Skips files that cannot be read and reports them at the end. Searches folders of images at any
    depth, in the order of the names.

    Raises:
        slim_data.DataError: images cannot be read, after all others are printed and written; or a
            file of the data set cannot be read.
    """
    images = list(_find_images(paths))
    if not images:
        raise UserError(
            f"IMAGE must be an image or a folder with images ({', '.join(_ENDINGS)}). "
            f"Received: {', '.join(map(repr, map(str, paths))) or 'none'}"
        )
    checkpoint, run = pretrained.newest_checkpoint(config.checkpoint_dir)
    output = output_path("output", config.output) if config.output else None
    model, step = evaluator.restore_network(checkpoint, run, config.restore_avg_var)
    log(f"{evaluator.weights_of(run, config.restore_avg_var)} of step {step}")
    name = run["identity"]["dataset_name"]
    data_dir = config.data_dir or run_folder.data_dir_of(run)
    info = slim_data.info(name, data_dir, run["identity"].get("num_classes"))
    names = _class_names(info, run["model"]["num_classes"])
    bad: dict[str, str] = {}
    batches = slim_data.image_batches(
        images,
        name,
        data_dir,
        batch_size=config.batch_size,
        image_size=run["model"]["image_size"],
        preprocessing=data.find_style(info, models.preprocessing(run["model"]["net"])),
        bad=bad,
    )
    # Lazy: `bad` is complete only for batches already made.
    usable = (image for image in images if image not in bad)
    found = []
    for batch in batches:
        logits = tf.nest.flatten(model(batch, training=False))[0]
        rows = tf.nn.softmax(tf.cast(logits, tf.float32)).numpy()
        for image, row in zip(itertools.islice(usable, len(rows)), rows, strict=True):
            # Of equal probabilities, the class with the smaller number comes first.
            best = np.argsort(-row, kind="stable")[: config.top].tolist()
            best_names = tuple(names[number] for number in best)
            probabilities = tuple(float(row[number]) for number in best)
            found.append(Prediction(image, tuple(best), best_names, probabilities))
            say(_line(found[-1]))
    if output is not None and found:
        with writing("output", output):
            _write(output, found)
        log(f"wrote {output}")
    if bad:
        for fault in bad.values() if len(bad) > 1 else ():
            say(fault)
        advice = f"the other {len(found)} images were classified" if found else ""
        raise DataErrors(bad.values(), advice)
    return found


def _find_images(paths: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    for path in (os.path.expanduser(os.fspath(path)) for path in paths):
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, files in os.walk(path, onerror=_refuse):
            folders.sort()
            for file in sorted(files):
                if file.lower().endswith(_ENDINGS):
                    yield os.path.join(folder, file)


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: {error.strerror}") from error


def _class_names(info: slim_data.DatasetInfo, num_classes: int) -> list[str]:
    """Returns the names of a network's classes, unknown for own images."""
    if info.num_classes != num_classes:
        return [""] * num_classes
    return [""] * info.label_offset + list(info.labels)


def _line(prediction: Prediction) -> str:
    found = zip(prediction.classes, prediction.names, prediction.probabilities, strict=True)
    return f"{printable(prediction.image)}: " + ", ".join(
        f"{shown(number, name)} {probability:.4f}" for number, name, probability in found
    )


def _write(output: pathlib.Path, predictions: Sequence[Prediction]) -> None:
    with (
        atomic_write(output) as beside,
        open(beside, "w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        for one in predictions:
            found = zip(one.classes, one.names, one.probabilities, strict=True)
            for rank, (number, name, probability) in enumerate(found, start=1):
                writer.writerow([one.image, rank, number, name, f"{probability:.6f}"])
