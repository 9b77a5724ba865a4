"""Evaluation of a checkpoint at the end of a run."""

import os
from typing import Any

import tensorflow as tf

import slim_data
from terngrad_tf.distribute.communication import peers
from terngrad_tf.training.configs.data_config import TrainingDataConfig
from terngrad_tf.training.configs.eval_config import EvalConfig
from terngrad_tf.training.errors import as_user_error
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.evaluation.evaluator import EvalResult
from terngrad_tf.training.input import data
from terngrad_tf.training.log import log
from terngrad_tf.training.storage import run_folder

_BATCH_SIZE = 100


def subset_of(dataset_name: str, subset: str | None = None) -> str:
    """Returns the split to evaluate on, by default the first that is not for training."""
    if subset is None:
        splits = slim_data.find_builder(dataset_name).info.splits
        return next(name for name in splits if name != "train")
    data.check_subset(dataset_name, subset, "eval_subset")
    return subset


def find_subset(
    config: TrainingDataConfig,
    subset: str | None = None,
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
) -> str | None:
    """Returns the split to evaluate a run on, or None, and says so, if it has no records.

    For the start of a run: a `subset` that is given must have records. Only the chief needs them.

    Args:
        config: of the run.
        cluster_resolver: of the run; None: a single process.
    """
    found = subset_of(config.place[0], subset)
    if cluster_resolver is not None:
        with as_user_error():
            if peers.tasks_of(cluster_resolver).index:
                return None
    if config.benchmark_mode and subset is None:
        return None
    try:
        slim_data.find_files(config.place[0], config.data_dir, found)
    except slim_data.DataError as error:
        if subset is not None:
            raise
        log(f"no evaluation at the end: {error}")
        return None
    return found


def evaluate_weights(
    checkpoint: str,
    train_dir: str | os.PathLike,
    data_dir: str | os.PathLike,
    subset: str | None = None,
    eval_dir: str | os.PathLike | None = None,
    average: bool = False,
) -> EvalResult:
    """Evaluates the last weights of a checkpoint, or their moving average.

    Args:
        checkpoint: path without ".index".
        eval_dir: folder for TensorBoard logs. Default: "eval" in train_dir.
    """
    run: Any = run_folder.read_run(train_dir)  # the checkpoint's run
    subset = subset_of(run["identity"]["dataset_name"], subset)
    config = EvalConfig.of(
        checkpoint_dir=train_dir,
        eval_dir=eval_dir or os.path.join(train_dir, "eval"),
        data_dir=data_dir,
        subset=subset,
        batch_size=_BATCH_SIZE,
        restore_avg_var=average,
    )
    return evaluator.evaluate_checkpoint(checkpoint, run, config)


def evaluate(
    checkpoint: str,
    train_dir: str | os.PathLike,
    data_dir: str | os.PathLike,
    subset: str | None = None,
) -> dict[str, float]:
    """Evaluates like `evaluate_weights`, and prints the accuracies in MindSpore's format.

    A line before reports last weights and, if any, their moving average. Returns the former's
    "top_1_accuracy" and "top_5_accuracy".
    """
    print("============== Starting Testing ==============", flush=True)
    result = evaluate_weights(checkpoint, train_dir, data_dir, subset)
    both = [result]
    run: Any = run_folder.read_run(train_dir)
    if evaluator.keeps_average(run):
        place = os.path.join(train_dir, "eval_average")
        both.append(evaluate_weights(checkpoint, train_dir, data_dir, subset, place, average=True))
    texts = [f"{100 * one.precision_at_1:.2f} % ({one.weights})" for one in both]
    print(f"top-1 accuracy at step {result.step}: {', '.join(texts)}", flush=True)
    accuracy = {"top_1_accuracy": result.precision_at_1, "top_5_accuracy": result.recall_at_5}
    print(f"============== Accuracy: {accuracy} ==============", flush=True)
    print(f"============== {{'Accuracy': {result.precision_at_1}}} ==============", flush=True)
    return accuracy
