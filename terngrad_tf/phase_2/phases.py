"""Both phases of training in a subspace on one axis of epochs, and their accuracies."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from terngrad_tf.phase_2.trainer import SubspaceResult
from terngrad_tf.training.evaluation import final_evaluation
from terngrad_tf.training.evaluation.evaluator import EvalResult
from terngrad_tf.training.input import inputs
from terngrad_tf.training.storage import checkpoints, run_folder

PHASE_1, PHASE_1_AVERAGE = "phase 1, last weights", "phase 1, moving average"
PHASE_2 = "phase 2, last weights"

# Evaluations by epoch, for each kind of weights.
Accuracies = Mapping[str, Mapping[float, EvalResult]]


class Phases:
    """Epochs of both phases on one axis."""

    def __init__(self, result: SubspaceResult):
        config, start = result.config, result.start
        self.start_step = start.step
        self._epochs_a_step_before = _epochs_a_step(start.run, config)
        run: Any = run_folder.read_run(config.train_dir)
        self._epochs_a_step_after = _epochs_a_step(run, config)

    def before(self, curve: Mapping[int, Any]) -> dict[float, Any]:
        """Returns a curve of the first phase, up to the start of the second, over epochs."""
        return {
            step * self._epochs_a_step_before: value
            for step, value in curve.items()
            if step <= self.start_step
        }

    def after(self, curve: Mapping[int, Any]) -> dict[float, Any]:
        """Returns a curve of the second phase over epochs."""
        begin = self.start_step * self._epochs_a_step_before
        return {begin + step * self._epochs_a_step_after: value for step, value in curve.items()}


def evaluate_phases(result: SubspaceResult, subset: str | None = None) -> Accuracies:
    """Evaluates the kept weights of both phases, each kind separately.

    The second phase includes its initial weights, if these are a checkpoint's of the first.

    Returns:
        Dict from `PHASE_1` (all checkpoints up to the start), `PHASE_1_AVERAGE` (only at the start)
        and `PHASE_2` to non-empty dicts from epochs, over both phases, to results.
    """
    config, start, phases = result.config, result.start, Phases(result)
    found = {PHASE_1: {}, PHASE_1_AVERAGE: {}, PHASE_2: {}}

    def evaluate(name, path, step):
        folder = os.path.dirname(path)
        words = name.replace(",", "").replace(" ", "_")
        found[name][step] = final_evaluation.evaluate_weights(
            *(path, folder, config.data.data_dir, subset),
            eval_dir=os.path.join(config.train_dir, f"eval_{words}"),
            average=name == PHASE_1_AVERAGE,
        )

    for path in _kept(start.folder):
        if checkpoints.step_of(path) <= phases.start_step:
            evaluate(PHASE_1, path, checkpoints.step_of(path))
    if start.keeps_average:
        evaluate(PHASE_1_AVERAGE, start.path, phases.start_step)
    sources = {"last": found[PHASE_1], "average": found[PHASE_1_AVERAGE]}
    source = sources.get(config.basis.start_at or "", {})
    if phases.start_step in source:
        found[PHASE_2][0] = source[phases.start_step]
    for path in _kept(config.train_dir):
        evaluate(PHASE_2, path, checkpoints.step_of(path))
    return {
        name: (phases.after if name == PHASE_2 else phases.before)(curve)
        for name, curve in found.items()
        if curve
    }


def table_rows(accuracies: Accuracies) -> list[list[str]]:
    """Returns rows [name, top-1 in percent, top-5 in percent] of the last weights of each kind."""
    last = {name: list(curve.values())[-1] for name, curve in accuracies.items()}
    return [
        [name, f"{100 * figures.precision_at_1:.2f} %", f"{100 * figures.recall_at_5:.2f} %"]
        for name, figures in last.items()
    ]


def _epochs_a_step(run, config):
    # This process may hold only a part of the examples; older descriptions lack the number.
    return 1 / (
        run.get("steps_per_epoch")
        or inputs.find_shard(config).num_examples / run["identity"]["batch_size"]
    )


def _kept(folder):
    """Returns the paths of a run's checkpoints, ascending."""
    state = tf.train.get_checkpoint_state(str(folder))
    paths = [] if state is None else state.all_model_checkpoint_paths
    return [path for path in paths if os.path.exists(f"{path}.index")]
