"""Numbers that a model's own `train_step` or `test_step` returns, of all replicas together.

Keras shows the mean over replicas of what the last step returned, and in place of it the metrics,
if their names are all that was returned. Without a strategy a number is of a whole batch: a mean
over its examples. So a replica's number counts by the replica's examples, that of one without
examples not at all, and losses that Keras scaled for their sum over replicas are summed.
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


# By model, the metrics of which results were among what its steps returned, by key.
_metrics_returned = weakref.WeakKeyDictionary()


class _Seen:
    """Tensors that a step of one replica made, which are no means over its examples."""

    def __init__(self):
        self.scaled_losses = []
        self._results = []

    def note_result(self, metric, result):
        parts = result.items() if isinstance(result, dict) else [(None, result)]
        self._results += [(value, (metric, name)) for name, value in parts]

    def metric_of(self, value):
        """The metric, and the key in its result, that a value is of; None for others."""
        return next((found for result, found in self._results if result is value), None)


def note_scaled_loss(loss: tf.Tensor) -> tf.Tensor:
    """Notes that replicas' values of a loss add up to that of the batch; returns it."""
    seen = getattr(_state, "seen", None)
    if seen is not None:
        seen.scaled_losses.append(loss)
    return loss


def has_own_step(model: keras.Model, kind: str) -> bool:
    """Whether a model has a `train_step` or `test_step` that is not Keras' own."""
    name = f"{kind}_step"
    return getattr(type(model), name) is not getattr(TensorFlowTrainer, name)


def averaged(step: Callable[..., Any], model: keras.Model) -> Callable[..., Any]:
    """A step that returns what Keras' mean over replicas makes numbers of the whole batch."""
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
    """Within, results of a model's metrics are told from other numbers."""
    metrics = model.metrics

    def noting(metric, result):
        def noted_result():
            value = result()
            seen = getattr(_state, "seen", None)
            if seen is not None:
                seen.note_result(metric, value)
            return value

        return noted_result

    # Each class of metrics has a `result` of its own, so no function of Keras can be replaced.
    for metric in metrics:
        vars(metric)["result"] = noting(metric, metric.result)
    try:
        yield
    finally:
        for metric in metrics:
            del vars(metric)["result"]


def _part(seen):
    """Function of a replica's number to what it brings to the mean over replicas."""
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
        # Not by the product alone: what zeros gave may be NaN.
        return tf.where(padding.is_empty, tf.zeros_like(value), value)

    return part


@patch(BaseTrainer, "compute_loss")
def _note_loss(stock, self, *args, **kwargs):
    """Notes the sum of scaled losses, which is scaled as they are."""
    return note_scaled_loss(stock(self, *args, **kwargs))


@patch(BaseTrainer, "_get_metrics_result_or_logs")
def _metrics_of_all_replicas(stock, self, logs):
    """Takes metrics of all replicas for those that a step returned among other numbers.

    Keras takes them only where a step returned nothing else.
    """
    found, returned = stock(self, logs), _metrics_returned.get(self, {})
    if found is not logs or not isinstance(logs, dict):
        return found
    results = {key: returned[key] for key in logs if key in returned}
    results = {key: (metric.result(), name) for key, (metric, name) in results.items()}
    return logs | {key: r if name is None else r[name] for key, (r, name) in results.items()}
