"""Exports the network of a run for use without this package's programs: `export`."""

import os
import pathlib
import secrets
import shutil

import slim_data
from terngrad_tf import models
from terngrad_tf.training.configs.eval_config import ExportConfig
from terngrad_tf.training.errors import output_path, require, writing
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.input import data
from terngrad_tf.training.log import log
from terngrad_tf.training.network import pretrained


def export(config: ExportConfig) -> pathlib.Path:
    """Writes the network of a run's newest checkpoint, as a .keras file or a SavedModel.

    Both take float32 images [n, side, side, channels], preprocessed as for evaluation, and return
    logits [n, classes]. `keras.models.load_model` reads the first once `terngrad_tf.models` is
    imported; `tf.saved_model.load` reads the second without it, as `serve`.
    """
    checkpoint, run = pretrained.newest_checkpoint(config.checkpoint_dir)
    output = pathlib.Path(config.output)
    require(not os.path.lexists(output), "output", "must not be there yet", config.output)
    output_path("output", output)
    model, step = evaluator.restore_network(checkpoint, run, config.restore_avg_var)
    # Keras requires the suffix.
    part = output.with_name(f".{secrets.token_hex(8)}.{output.name}")
    try:
        with writing("output", output):
            if output.suffix == ".keras":
                model.save(part)
            else:
                model.export(part, verbose=False)
            part.rename(output)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)
    side, channels = run["model"]["image_size"], run["model"]["channels"]
    weights = evaluator.weights_of(run, config.restore_avg_var)
    log(
        f"wrote the {weights} of step {step} to {output}: "
        f"images [n, {side}, {side}, {channels}] {_preprocessed(run)} to logits"
    )
    return output


def _preprocessed(run):
    """Returns how a run's images are preprocessed, for messages."""
    builder = slim_data.DATASETS.get(run["identity"]["dataset_name"])
    if builder is None:  # registered by another program
        return "preprocessed as for evaluation"
    styles = builder.info.preprocessings
    own = data.find_style(builder.info, models.preprocessing(run["model"]["net"]))
    return f"in the style {own or next(iter(styles))}"
