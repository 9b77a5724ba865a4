"""Combines the numbers that a model's own `train_step` or `test_step` returns on all replicas.

Keras shows the mean over replicas of the last step's results. Without a strategy, a number is a
mean over a whole batch. So a replica's number is weighted by its examples, and losses that Keras
scaled for a sum over replicas are summed.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.padding import current_padding

_state = threading.local()


# {model: {key of a result: (its metric, key in the metric's result)}}.
_metrics_returned = weakref.WeakKeyDictionary()


class _Seen:
    """Tensors created in a replica's step that are not means over its examples."""

    def __init__(self):
        self.scaled_losses = []
        self._results = []

    def note_result(self, metric, result):
        parts = result.items() if isinstance(result, dict) else [(None, result)]
        self._results += [(value, (metric, name)) for name, value in parts]

    def metric_of(self, value):
        """Returns (metric, key in its result) for a metric's value, or None for other values."""
        return next((found for result, found in self._results if result is value), None)


def note_scaled_loss(loss: tf.Tensor) -> tf.Tensor:
    """Notes that replicas' values of a loss add up to the batch's loss; returns the loss."""
    seen = getattr(_state, "seen", None)
    if seen is not None:
        seen.scaled_losses.append(loss)
    return loss


def has_own_step(model: keras.Model, kind: str) -> bool:
    """Returns True if a model overrides Keras' `train_step` or `test_step`."""
    name = f"{kind}_step"
    return getattr(type(model), name) is not getattr(TensorFlowTrainer, name)


def averaged(step: Callable[..., Any], model: keras.Model) -> Callable[..., Any]:
    """Returns a step whose results Keras' mean over replicas turns into the whole batch's."""
    if isinstance(step, polymorphic_function.Function):
        step = step.python_function
    returned = _metrics_returned.setdefault(model, {})

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(step)
    def averaged_step(*args):
        _state.seen = seen = _Seen()
        try:
            results = step(*args)
        finally:
            _state.seen = None
        part = _part(seen)
        if not isinstance(results, dict):
            return tf.nest.map_structure(part, results)
        metrics = {key: seen.metric_of(value) for key, value in results.items()}
        returned.update((key, found) for key, found in metrics.items() if found)
        return {
            key: value if metrics[key] else tf.nest.map_structure(part, value)
            for key, value in results.items()
        }

    return averaged_step


@contextlib.contextmanager
def noting_metrics(model: keras.Model) -> Iterator[None]:
    """Context that distinguishes results of a model's metrics from other numbers."""
    metrics = model.metrics

    def noting(metric, result):
        def noted_result():
            value = result()
            seen = getattr(_state, "seen", None)
            if seen is not None:
                seen.note_result(metric, value)
            return value

        return noted_result

    # Each class of metrics has its own `result`: `patch` cannot replace it.
    for metric in metrics:
        vars(metric)["result"] = noting(metric, metric.result)
    try:
        yield
    finally:
        for metric in metrics:
            del vars(metric)["result"]


def _part(seen):
    """Returns a function from a replica's number to its term in the mean over replicas."""
    padding = current_padding()
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync

    def part(value):
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            return value
        if any(value is loss for loss in seen.scaled_losses):
            value *= num_replicas
        elif padding.share is not None:
            value *= tf.cast(num_replicas * padding.share, value.dtype)
        if padding.is_empty is None:
            return value
        # Not a product: results on zeros may be NaN.
        return tf.where(padding.is_empty, tf.zeros_like(value), value)

    return part


@patch(BaseTrainer, "compute_loss")
def _note_loss(stock, self, *args, **kwargs):
    """Notes the sum of scaled losses, which is scaled like its terms."""
    return note_scaled_loss(stock(self, *args, **kwargs))


@patch(BaseTrainer, "_get_metrics_result_or_logs")
def _metrics_of_all_replicas(stock, self, logs):
    """Replaces metrics that a step returned among other numbers by metrics of all replicas.

    Keras does so only if a step returned nothing but metrics.
    """
    found, returned = stock(self, logs), _metrics_returned.get(self, {})
    if found is not logs or not isinstance(logs, dict):
        return found
    results = {key: returned[key] for key in logs if key in returned}
    results = {key: (metric.result(), name) for key, (metric, name) in results.items()}
    return logs | {key: r if name is None else r[name] for key, (r, name) in results.items()}
