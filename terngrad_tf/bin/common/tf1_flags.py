"""Flags from TensorFlow 1's TernGrad that have no effect, but are checked.

`--size_to_binarize` and `--num_nodes` remain options.
"""

import functools
from collections.abc import Mapping
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin.common import flags
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import Config, configuration, harmless, option
from terngrad_tf.training.configs.eval_config import EvalConfig
from terngrad_tf.training.configs.model_config import is_linear
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError, require

_TOWER = checks.integers(0, checks.WORKERS.most, also=-1)


def _check_encoding(name, value):
    rule = "must be True: ternary gradients always travel encoded, without loss"
    require(value, name, rule, value)


def _check_tower(name, value, num_nodes):
    """Raises UserError unless `value` is a worker's number or -1."""
    rule = f"must be the number of a worker, 0 to {num_nodes - 1}, or -1 for all"
    require(-1 <= value < num_nodes, name, rule, value)


@configuration
@harmless
class TrainingFlags(Config):
    """Of training: all workers hold the same values, gradients are always encoded."""

    save_tower: int = option(
        -1,
        "Worker whose copy of the variables to save, -1 for all. All workers hold the same "
        "values, so a checkpoint holds them once either way.",
        _TOWER,
    )
    use_encoding: bool = option(
        True,
        "Ternary gradients are always encoded, without loss; False is refused.",
        _check_encoding,
    )
    log_device_placement: bool = option(False, "Print the device of every operation.")


@configuration
class EvaluationFlags(Config):
    """Flags of evaluation, which must match the run's own description."""

    net: str | None = option(None, "Network; must be the run's, which is the default.")
    image_size: int | None = option(
        None, "Pixels of a side; must be the run's, which is the default.", checks.PIXELS
    )
    seed: int | None = option(None, "Seed; must be the run's, which is the default.", checks.SEED)
    weight_decay: float | None = option(
        None, "L2 factor; must be the run's, which is the default.", checks.FACTOR
    )
    dropout_keep_prob: float | None = option(
        None,
        "Probability of keeping a unit in training; must be the run's, which is the default.",
        checks.Range(0, 1, above=True),
    )
    size_to_binarize: int | None = option(
        None,
        "Elements from which gradients are ternary; must be the run's, which is the default.",
        checks.COUNT,
    )
    tower: int = option(
        -1,
        "Worker whose copy of the variables to evaluate, -1 for any. All workers hold the same "
        "values; a number without a worker in the run is refused.",
        _TOWER,
    )

    def check_run(self, checkpoint_dir: str, run: Mapping[str, Any]) -> None:
        """Raises UserError unless a run, from `run_folder.read_run`, matches the flags."""
        identity = run["identity"]
        expected = self.values()
        tower = expected.pop("tower")
        for name, given in expected.items():
            trained = identity.get(name)
            # A TensorFlow 1 checkpoint holds few of these.
            if None not in (given, trained) and given != trained:
                raise UserError(
                    f"`{name}` must be that of the run in checkpoint_dir, {trained!r}. "
                    f"Received: {name}={given!r}, checkpoint_dir={checkpoint_dir!r}"
                )
        _check_tower("tower", tower, identity["num_nodes"])


def train_config(values: FlagValues) -> TrainConfig:
    """Returns the `TrainConfig` of parsed flags.

    A program's default that has no meaning with the flags given is left out.
    """
    others, falls_in_a_line = {}, is_linear(values.learning_rate_decay_type, values.optimizer)
    for name, value, is_meant in (
        ("net", None, not values.fine_tune),  # the network of the initial weights
        ("snapshot_per_epoch", None, values.snapshot_every_steps is None),
        ("warmup_epochs", 0.0, falls_in_a_line),
        ("decay_epochs", None, falls_in_a_line),
    ):
        if not is_meant and not values[name].present:
            others[name] = value
    leftovers = flags.config_of(values, TrainingFlags)
    config = flags.config_of(values, TrainConfig, **others)
    _check_tower("save_tower", leftovers.save_tower, config.cluster.num_nodes)
    return config


def eval_config(values: FlagValues) -> EvalConfig:
    """Returns the `EvalConfig` of parsed flags."""
    expected = flags.config_of(values, EvaluationFlags)
    check_run = functools.partial(expected.check_run, values.checkpoint_dir)
    return flags.config_of(values, EvalConfig, check_run=check_run)


def log_device_placement(values: FlagValues) -> None:
    """Makes TensorFlow print the device of every operation if the flags ask for it."""
    if values.log_device_placement:
        # Imported here: flags are checked without TensorFlow.
        import tensorflow as tf

        tf.debugging.set_log_device_placement(True)
