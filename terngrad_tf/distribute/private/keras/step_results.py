"""Combines the numbers that a model's own `train_step` or `test_step` returns on all replicas.

Keras shows the mean over replicas of the last step's results. Without a strategy, a number is a
mean over a whole batch. So a replica's number is weighted by its examples, and losses are a
replica's mean: only their gradients are scaled for the sum over replicas.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.padding import current_padding
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

_state = threading.local()


# {model: {kind of step: {path of a result: (its metric, key in the metric's result)}}}.
_metrics_returned = weakref.WeakKeyDictionary()
# {model: {kind of step: logs of the last one}}.
_last_logs = weakref.WeakKeyDictionary()
# {(id of a metric, name of its method): [number of contexts that replace it, own attribute]}.
_replaced_methods = {}


class _Seen:
    """Results of metrics in a replica's step."""

    def __init__(self):
        self._results = []

    def note_result(self, metric, result):
        parts = result.items() if isinstance(result, dict) else [(None, result)]
        self._results += [(value, (metric, name)) for name, value in parts]

    def metric_of(self, value):
        """Returns (metric, key in its result) for a metric's value, or None for other values."""
        return next((found for result, found in self._results if result is value), None)


def losses_are_means() -> bool:
    """True in a model's own `train_step` or `test_step`."""
    return getattr(_state, "seen", None) is not None


@contextlib.contextmanager
def losses_as_parts() -> Iterator[None]:
    """Context in which a model's own step, too, gets losses as terms of a sum over replicas."""
    seen, _state.seen = getattr(_state, "seen", None), None
    try:
        yield
    finally:
        _state.seen = seen


class _Scaling:
    """The scaling of a loss's gradient; `is_done` while the gradient comes scaled."""

    def __init__(self, scale):
        self.scale = scale
        self.is_done = False

    def __call__(self, gradient):
        return tf.identity(gradient) if self.is_done else self.scale(gradient)


def with_scaled_gradient(loss: tf.Tensor, scale: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Returns a loss whose gradient is scaled, but not its value.

    Steps of a model's own return losses, add them and track their means.
    """
    scaling = _Scaling(scale)

    @tf.custom_gradient
    def scaled(value):
        return tf.identity(value), scaling

    loss = scaled(loss)
    loss._gradient_scaling = scaling
    return loss


def gradient_scaling(loss: tf.Tensor) -> _Scaling | None:
    """Returns the scaling of `with_scaled_gradient`; None for other tensors."""
    return getattr(loss, "_gradient_scaling", None)


def has_own_step(model: keras.Model, kind: str) -> bool:
    """Returns True if a model overrides what Keras' `train_step` or `test_step` returns."""

    def is_own(name, stock):
        # The model's class may define it, or an attribute of the model replace it.
        method = getattr(model, name)
        return getattr(method, "__func__", method) is not getattr(stock, name)

    return is_own(f"{kind}_step", TensorFlowTrainer) or is_own("compute_metrics", BaseTrainer)


def averaged(step: Callable[..., Any], model: keras.Model, kind: str) -> Callable[..., Any]:
    """Returns a step whose results Keras' mean over replicas turns into the whole batch's."""
    if isinstance(step, polymorphic_function.Function):
        step = step.python_function
    returned = _metrics_returned.setdefault(model, {}).setdefault(kind, {})

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(step)
    def averaged_step(*args):
        _state.seen = seen = _Seen()
        try:
            results = step(*args)
        finally:
            _state.seen = None
        part = _part()
        if not isinstance(results, dict):
            return tf.nest.map_structure(part, results)
        returned.clear()

        def part_or_metric(path, value):
            metric = seen.metric_of(value)
            if metric is None:
                return tf.nest.map_structure(part, value)
            returned[path] = metric
            return value

        return _map_values(part_or_metric, results)

    return averaged_step


def _map_values(function, results, path=()):
    """Maps each (path, value) of a dictionary, whose values may be dictionaries.

    The metrics that `compile` gets are one metric, whose result is a dictionary.
    """
    if not isinstance(results, dict):
        return function(path, results)
    return {key: _map_values(function, value, (*path, key)) for key, value in results.items()}


@contextlib.contextmanager
def noting_metrics(model: keras.Model) -> Iterator[None]:
    """Context that distinguishes results of a model's metrics from other numbers."""

    def noting(metric, result):
        def noted_result():
            value = result()
            seen = getattr(_state, "seen", None)
            if seen is not None:
                seen.note_result(metric, value)
            return value

        return noted_result

    # Each class of metrics has its own `result`: `patch` cannot replace it.
    with _replaced(model.metrics, "result", noting), weighted_numbers(model.metrics):
        yield


@contextlib.contextmanager
def weighted_numbers(metrics: Sequence[Any]) -> Iterator[None]:
    """Context in which means of numbers, such as losses, weight replicas by their examples.

    Without a strategy each update with one number counts 1; here replicas' updates together do.

    Args:
        metrics: `keras.metrics.Metric`s; others than means of given values do not change.
    """
    mean = keras.metrics.Mean
    means = [metric for metric in metrics if type(metric).update_state is mean.update_state]

    def update_state(update, values, sample_weight=None):
        values = tf.convert_to_tensor(values)
        if sample_weight is None and values.shape.rank == 0:
            share = current_padding().share
            num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
            sample_weight = 1 / num_replicas if share is None else share
        return update(values, sample_weight)

    with _replaced(
        means, "update_state", lambda _, update: functools.partial(update_state, update)
    ):
        yield


@contextlib.contextmanager
def _replaced(metrics, name, replacement):
    """Context in which each metric's method is `replacement(metric, method)`.

    Contexts may overlap: those of a step, of its loss, and of replicas that wait for one another.
    """
    metrics = {(id(metric), name): metric for metric in metrics}
    for key, metric in metrics.items():
        own = vars(metric)
        if key not in _replaced_methods:
            _replaced_methods[key] = [0, own.get(name)]
            own[name] = replacement(metric, getattr(metric, name))
        _replaced_methods[key][0] += 1
    try:
        yield
    finally:
        for key, metric in metrics.items():
            _replaced_methods[key][0] -= 1
            if not _replaced_methods[key][0]:
                _, method = _replaced_methods.pop(key)
                if method is None:
                    del vars(metric)[name]
                else:
                    vars(metric)[name] = method


def _part():
    """Returns a function from a replica's number to its term in the mean over replicas."""
    padding = current_padding()
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync

    def part(value):
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            return value
        if padding.share is not None:
            value *= tf.cast(num_replicas * padding.share, value.dtype)
        if padding.is_empty is None:
            return value
        # Not a product: results on zeros may be NaN.
        return tf.where(padding.is_empty, tf.zeros_like(value), value)

    return part


def note_logs(model: keras.Model, kind: str, logs: Any) -> Any:
    """Notes and returns the logs of a model's "train" or "test" step."""
    _last_logs.setdefault(model, {})[kind] = logs
    return logs


def with_metrics(model: keras.Model, kind: str, logs: Any) -> Any:
    """Replaces metrics that a step returned among other numbers by metrics of all replicas."""
    returned = _metrics_returned.get(model, {}).get(kind, {})
    metrics = {id(metric): metric for metric, _ in returned.values()}
    results = {key: metric.result() for key, metric in metrics.items()}

    def result(path, value):
        if path not in returned:
            return value
        metric, name = returned[path]
        return results[id(metric)] if name is None else results[id(metric)][name]

    return _map_values(result, logs)


@patch(BaseTrainer, "_get_metrics_result_or_logs")
def _metrics_of_all_replicas(stock, self, logs):
    """Gives `with_metrics` at an epoch's end.

    Keras does so only if a step returned nothing but metrics. Logs of local steps are those of an
    earlier step, until an epoch ends here.
    """
    kinds = [kind for kind, last in _last_logs.get(self, {}).items() if last is logs]
    local = local_steps_optimizer(getattr(self, "optimizer", None))
    if local is not None and "train" in kinds:
        logs = local.schedule.logs_of_epoch(logs)
    found = stock(self, logs)
    if found is not logs or not isinstance(logs, dict):
        return found
    for kind in kinds:
        logs = with_metrics(self, kind, logs)
    return logs
