"""Checks that objects used under a strategy were made in its scope and by Keras 3.

Keras 3 does not check.
"""

import warnings
import weakref

import keras
import tensorflow as tf
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from tensorflow.python.distribute import distribute_lib, values

from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import variable_paths
from terngrad_tf.distribute.private.strategies.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.strategies.strategies import is_own

_ADVICE = (
    "Build the model, and make what `compile` gets (optimizer, metrics), inside"
    " `with strategy.scope():`"
)
_RUN = (
    "The step of a user's own loop must be run by `strategy.run(step, args=...)`, in which each"
    " replica computes the gradients of its part of a batch (`optimizer.build(weights)` alone makes"
    " an optimizer's variables). Received: a step outside of it"
)
# Modules of optimizers whose gradients no op sees: of Keras 2 and TensorFlow 1.
_OTHER_OPTIMIZERS = ("tf_keras.src.optimizers.", "tensorflow.python.training.optimizer")
# Strategies not yet used for training or evaluation.
_unused = weakref.WeakSet()


def watch_scope(strategy: tf.distribute.Strategy) -> None:
    """Warns of training outside every scope as long as this new strategy is unused."""
    _unused.add(strategy)


@patch(BaseTrainer, "compile")
def _compile_in_scope(stock, self, *args, **kwargs):
    """Runs `compile` in the scope of the model's strategy; refuses models built outside.

    Keras trains a model built outside in this process alone, without an error. All replicas would
    write other variables from outside one after another.
    """
    strategy = self.distribute_strategy
    if not is_own(strategy):
        return stock(self, *args, **kwargs)
    _check_model(self)
    with strategy.scope():
        stock(self, *args, **kwargs)
    _check(strategy, "optimizer", getattr(self.optimizer, "variables", ()))


@patch(TensorFlowTrainer, "make_train_function", "make_test_function")
def _check_before_steps(stock, self, force=False):
    """Refuses trained weights and metrics created outside; warns of an unused strategy.

    Also refuses unsupported steps before they are traced.
    """
    strategy = self.distribute_strategy
    is_training = stock.__name__ == "make_train_function"
    op = gradient_ops(strategy)
    if is_training and op is not None:
        op.check_model(
            bool(self.jit_compile) and not is_own(strategy),
            variable_paths(self.variables) if self.built else None,
        )
    if is_own(strategy):
        _unused.discard(strategy)
        _check_model(self)
        _check(strategy, "metric", self.metrics_variables)
        if is_training:
            _check(strategy, "model", self.trainable_variables)
    elif self._distribute_strategy is None and _unused:
        _unused.clear()
        warnings.warn(
            "This model is used without `TernGradStrategy`, under which nothing was used yet: it,"
            f" or the copy that was cloned or loaded, was made outside of the scope. {_ADVICE}",
            stacklevel=4,
        )
    return stock(self, force)


@patch(keras_base_optimizer.BaseOptimizer, "build", "apply")
def _refuse_from_outside(stock, self, *args, **kwargs):
    """Refuses an optimizer or weights made outside the strategy that reduces gradients.

    The optimizer's schedule would advance once per replica; the weights cannot be updated. In a
    user's own loop no other check finds this.
    """
    strategy = tf.distribute.get_strategy()
    _unused.discard(strategy)
    is_shared = strategy.num_replicas_in_sync > 1 and gradient_ops(strategy)
    if is_shared and self._distribution_strategy is not strategy:
        raise ValueError(
            f"The optimizer {self.name!r} was made outside of the scope of the strategy. {_ADVICE}"
        )
    # Of `apply`; an iterator would be read.
    weights = kwargs.get("trainable_variables", args[1] if len(args) > 1 else None)
    if isinstance(weights, list | tuple):
        if gradient_ops(strategy):
            _check(strategy, "model", weights)
    if stock.__name__ == "apply":
        is_list = isinstance(weights, list | tuple)
        if any(map(_is_updated_alone, weights if is_list else self._trainable_variables)):
            raise ValueError(_RUN)
    return stock(self, *args, **kwargs)


def _is_updated_alone(weight):
    """Returns True for a weight of a strategy that reduces gradients, outside of its replicas.

    Outside of its scope, it would take the gradients of this process alone, and as floats.
    """
    value = _value(weight)
    if not isinstance(value, values.DistributedVariable):
        return False
    strategy = value.distribute_strategy
    is_replica = not tf.distribute.in_cross_replica_context()
    is_inside = is_replica and strategy is tf.distribute.get_strategy()
    return not is_inside and gradient_ops(strategy) is not None


@patch(tf.GradientTape, "gradient")
def _refuse_outside_of_run(stock, self, target, sources, *args, **kwargs):
    """Refuses gradients of weights in the scope, but outside of `run`, where they have no value."""
    if tf.distribute.in_cross_replica_context() and is_own(tf.distribute.get_strategy()):
        for source in tf.nest.flatten(sources):
            if isinstance(_value(source), values.DistributedVariable):
                raise ValueError(_RUN)
    return stock(self, target, sources, *args, **kwargs)


@patch(distribute_lib.ReplicaContextBase, "merge_call")
def _refuse_other_optimizers(stock, self, merge_fn, args=(), kwargs=None):
    """Refuses optimizers of other libraries, whose gradients would travel as floats in silence."""
    module = getattr(merge_fn, "__module__", None) or ""
    if module.startswith(_OTHER_OPTIMIZERS) and gradient_ops(self.strategy) is not None:
        raise ValueError(
            "The optimizer must be one of Keras 3, whose gradients can travel as codes. Received:"
            f" an optimizer of {module}. `tf.keras` is Keras 3 if TF_USE_LEGACY_KERAS is not set"
        )
    return stock(self, merge_fn, args, kwargs)


@patch(keras.Variable, "__init__")
def _note_variable(stock, self, *args, **kwargs):
    """Notes each variable of the op's strategy, whether or not an optimizer trains it."""
    stock(self, *args, **kwargs)
    op = gradient_ops(tf.distribute.get_strategy())
    if op is not None:
        op.note_variable(self.path)


def _check_model(model):
    if model._distribute_strategy is None:
        raise ValueError(f"The model was built outside of the scope of the strategy. {_ADVICE}")


def _check(strategy, owner, variables):
    for variable in variables:
        value = _value(variable)
        is_distributed = isinstance(value, values.DistributedVariable)
        if not is_distributed or value.distribute_strategy is not strategy:
            raise ValueError(
                f"The {owner}'s variable {variable.name!r} was made outside of the scope of the"
                f" strategy. {_ADVICE}"
            )


def _value(variable):
    return variable.value if isinstance(variable, keras.Variable) else variable
