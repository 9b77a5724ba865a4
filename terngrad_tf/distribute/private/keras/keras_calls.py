"""Lets processes compare their work before, during and after calls of Keras' training loop.

Users' lists of callbacks may differ between processes, and Keras calls no callback before the data
are distributed.
"""

import inspect
from typing import Any

import keras
from keras.src.optimizers import base_optimizer as keras_base_optimizer

# Imported first: the replacements here must wrap theirs.
from terngrad_tf.distribute.private.keras import (
    keras_training,  # noqa: F401
    scopes,  # noqa: F401
)
from terngrad_tf.distribute.private.keras.keras_training import wrap_made
from terngrad_tf.distribute.private.keras.rounding_noise import noise_variables
from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.accumulators import accumulators_of
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

_METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}


def _calls_of(strategy):
    """Returns the `calls.Calls` of a strategy, or None without other processes."""
    return strategy.extended.calls if is_own(strategy) else None


@patch(TensorFlowTrainer, "fit", "evaluate", "predict")
def _agree_on_call(stock, self, *args, **kwargs):
    """Lets processes compare their arguments before they train or evaluate together."""
    calls = _calls_of(self.distribute_strategy)
    if calls is None:
        return stock(self, *args, **kwargs)
    is_validation = kwargs.get("_use_cached_eval_dataset", False)
    arguments = _arguments(stock, self, args, kwargs)
    with calls.around(stock.__name__, self, arguments, is_validation):
        return stock(self, *args, **kwargs)


def _arguments(function, model, args, kwargs):
    """Returns the arguments of a call by name, with defaults, or {} if they are wrong."""
    try:
        bound = inspect.signature(function).bind(model, *args, **kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


@patch(BaseTrainer, "compile")
def _note_compiled(stock, self, *args, **kwargs):
    """Notes rates as given by the user: as variables, processes take them from the chief."""
    stock(self, *args, **kwargs)
    calls = _calls_of(self.distribute_strategy)
    if calls is not None:
        calls.compiled(self)


@patch(TensorFlowTrainer, "make_train_function", "make_test_function", "make_predict_function")
def _take_steps_together(stock, self, force=False):
    """Notes each step of all processes."""
    calls = _calls_of(self.distribute_strategy)
    method = _METHODS[stock.__name__.removeprefix("make_").removesuffix("_function")]

    def wrap(made):
        def together(*args):
            with calls.step(method):
                return made(*args)

        return together

    return wrap_made(stock, self, force, None if calls is None else wrap)


@patch(keras.callbacks.CallbackList, "on_train_batch_end", "on_epoch_end")
def _compare_weights(stock, self, *args, **kwargs):
    """Lets processes compare their weights at intervals, after all callbacks."""
    stock(self, *args, **kwargs)
    model = getattr(self, "model", None)
    calls = None if model is None else _calls_of(model.distribute_strategy)
    if calls is not None:
        calls.stepped(model, is_epoch_end=stock.__name__ == "on_epoch_end")


@patch(keras_base_optimizer.BaseOptimizer, "apply")
def _compare_optimizer(stock, self, *args, **kwargs):
    """Lets processes compare the optimizer of a user's own loop before its first step."""
    strategy = self._distribution_strategy
    calls = None if strategy is None else _calls_of(strategy)
    if calls is not None:
        calls.applied(self)
    return stock(self, *args, **kwargs)


def compiled_with(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of `compile` by name, or {} if a model overrides `compile`.

    Keras' public form describes a lambda by code with paths.
    """
    config = getattr(model, "_compile_config", None)
    return dict(config.config) if config is not None else {}


def agreed_variables(model: keras.Model) -> list[Any]:
    """Returns the variables that are equal on all processes between calls and steps of Keras' loop.

    These are floating-point weights (counters may differ) and the optimizer's variables, without
    accumulated gradients; with local steps, as of the last exchange.
    """
    optimizer = getattr(model, "optimizer", None)
    local = local_steps_optimizer(optimizer)
    variables = [v for v in model.weights if keras.backend.is_float_dtype(v.dtype)]
    if local is not None:
        variables = [] if not local.built else variables + local.shared_variables
    elif optimizer is not None:
        accumulators = {id(v) for v in accumulators_of(optimizer)}
        variables += [v for v in optimizer.variables if id(v) not in accumulators]
        variables += noise_variables(optimizer)
    extended = model.distribute_strategy.extended
    return [v for v in variables if not extended.initial_values.may_differ(v.value)]
