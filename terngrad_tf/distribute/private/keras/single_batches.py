"""Lets Keras' methods that take one batch return the results of that batch.

Each process of a cluster passes its own part. `train_on_batch` and `test_on_batch` return metrics
of all parts together, where Keras returns the mean over replicas of their own metrics: wrong for
metrics that are no means, such as `AUC`, and for replicas with fewer examples than others.
`predict_on_batch` returns as many rows as it gets.
"""

from typing import Any

import keras

# Imported first: the steps here must wrap theirs.
from terngrad_tf.distribute.private.keras import keras_calls  # noqa: F401
from terngrad_tf.distribute.private.keras.keras_training import wrap_made
from terngrad_tf.distribute.private.keras.step_results import has_own_step, with_metrics
from terngrad_tf.distribute.private.keras_names import TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.contexts import is_single_batch, single_batch
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer


@patch(TensorFlowTrainer, "train_on_batch", "test_on_batch")
def _in_single_batch(stock, self, *args, **kwargs):
    """Distinguishes single batches from those of `fit`, whose logs are quicker means."""
    with single_batch():
        return stock(self, *args, **kwargs)


@patch(TensorFlowTrainer, "predict_on_batch")
def _predict_own_rows(stock, self, x):
    """Predicts a process's own rows, in a function that gathers no others, unlike `predict`'s."""
    if getattr(self.distribute_strategy.extended, "process_group", None) is None:
        return stock(self, x)
    # Made again, with other options, after `compile`.
    self.make_predict_function()
    gathering = self.predict_function
    self.predict_function = getattr(gathering, "of_own_rows", None)
    try:
        with single_batch():
            return stock(self, x)
    finally:
        gathering.of_own_rows, self.predict_function = self.predict_function, gathering


@patch(TensorFlowTrainer, "make_train_function", "make_test_function")
def _with_metrics(stock, self, force=False):
    """Replaces the logs of a single batch by metrics of all replicas.

    Here, and not in what Keras returns, whose form depends on `return_dict` and the release.
    """
    kind = stock.__name__.removeprefix("make_").removesuffix("_function")

    def wrap(made):
        def with_metrics(*args):
            logs = made(*args)
            return _of_all_replicas(self, kind, logs) if is_single_batch() else logs

        return with_metrics

    return wrap_made(stock, self, force, wrap if is_own(self.distribute_strategy) else None)


def _of_all_replicas(model: keras.Model, kind: str, logs: Any) -> Any:
    """Returns a step's logs with metrics of all replicas, also of other processes."""
    is_alone = model.distribute_strategy.extended.process_group is None
    is_local = kind == "train" and local_steps_optimizer(getattr(model, "optimizer", None))
    # Processes do not meet in local steps, whose logs are of the last exchange.
    if not isinstance(logs, dict) or (is_local and not is_alone):
        return logs
    if not has_own_step(model, kind):
        return model._get_metrics_result_or_logs(logs)
    # With equal keys Keras would take metrics for what an own step computed itself.
    return with_metrics(model, kind, logs)
