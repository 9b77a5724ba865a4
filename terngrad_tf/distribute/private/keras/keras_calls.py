"""Where processes compare what they do in Keras' loop: before calls, in between, and after them.

Keras has callbacks at these places, but a user's list of them is the user's, and may differ between
processes; nor are any called before the data are distributed.
"""

import functools
import inspect
from typing import Any

import keras
from keras.src.optimizers import base_optimizer as keras_base_optimizer

# Imported first, as what they replace must lie within what is replaced here.
from terngrad_tf.distribute.private.keras import (
    keras_training,  # noqa: F401
    scopes,  # noqa: F401
)
from terngrad_tf.distribute.private.keras.rounding_noise import noise_variables
from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

_METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}


def _calls_of(strategy):
    """`calls.Calls` of a strategy; None where there is nobody to agree with."""
    return strategy.extended.calls if is_own(strategy) else None


@patch(TensorFlowTrainer, "fit", "evaluate", "predict")
def _agree_on_call(stock, self, *args, **kwargs):
    """Lets processes compare what they were given before they train or evaluate together."""
    calls = _calls_of(self.distribute_strategy)
    if calls is None:
        return stock(self, *args, **kwargs)
    with calls.around(stock.__name__, self, _arguments(stock, self, args, kwargs)):
        return stock(self, *args, **kwargs)


def _arguments(function, model, args, kwargs):
    """The arguments of a call by name, defaults included; none where they are wrong."""
    try:
        bound = inspect.signature(function).bind(model, *args, **kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


@patch(BaseTrainer, "compile")
def _note_compiled(stock, self, *args, **kwargs):
    """Notes rates as they were given: they are variables, which processes take from the chief."""
    stock(self, *args, **kwargs)
    calls = _calls_of(self.distribute_strategy)
    if calls is not None:
        calls.compiled(self)


@patch(TensorFlowTrainer, "make_train_function", "make_test_function", "make_predict_function")
def _take_steps_together(stock, self, force=False):
    """Notes each step, in which all processes take part."""
    calls = _calls_of(self.distribute_strategy)
    attribute = stock.__name__.removeprefix("make_")
    before = getattr(self, attribute)
    stock(self, force)
    made = getattr(self, attribute)
    if calls is None or made is None or (made is before and not force):
        return made
    method = _METHODS[attribute.removesuffix("_function")]

    @functools.wraps(made)
    def together(*args):
        with calls.step(method):
            return made(*args)

    setattr(self, attribute, together)
    return together


@patch(keras.callbacks.CallbackList, "on_train_batch_end", "on_epoch_end")
def _compare_weights(stock, self, *args, **kwargs):
    """Lets processes compare their weights now and then, after all callbacks."""
    stock(self, *args, **kwargs)
    model = getattr(self, "model", None)
    calls = None if model is None else _calls_of(model.distribute_strategy)
    if calls is not None:
        calls.stepped(model, is_epoch_end=stock.__name__ == "on_epoch_end")


@patch(keras_base_optimizer.BaseOptimizer, "apply")
def _compare_optimizer(stock, self, *args, **kwargs):
    """Lets processes compare an optimizer of a loop of the user's own before its first step."""
    strategy = self._distribution_strategy
    calls = None if strategy is None else _calls_of(strategy)
    if calls is not None:
        calls.applied(self)
    return stock(self, *args, **kwargs)


def compiled_with(model: keras.Model) -> dict[str, Any]:
    """What `compile` was given, by argument; nothing where a model has a `compile` of its own.

    Keras tells it in a form in which a lambda is code with paths.
    """
    config = getattr(model, "_compile_config", None)
    return dict(config.config) if config is not None else {}


def agreed_variables(model: keras.Model) -> list[Any]:
    """Variables that all processes hold alike between the calls and steps of Keras' loop.

    These are the weights, but those that count (a process may count its own examples), and what
    optimizers keep, but gradients that they accumulate. Of local steps, what the last exchange
    left.
    """
    optimizer = getattr(model, "optimizer", None)
    local = local_steps_optimizer(optimizer)
    variables = [v for v in model.weights if keras.backend.is_float_dtype(v.dtype)]
    if local is not None:
        variables = [] if not local.built else variables + local.shared_variables
    elif optimizer is not None:
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        accumulators = {id(v) for v in getattr(inner, "_accumulated_gradients", ())}
        variables += [v for v in optimizer.variables if id(v) not in accumulators]
        variables += noise_variables(optimizer)
    extended = model.distribute_strategy.extended
    return [v for v in variables if not extended.initial_values.may_differ(v.value)]
