"""Whether what trains under a strategy was made in its scope; Keras 3 does not ask."""

import functools
import warnings
import weakref

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from keras.src.trainers import trainer as keras_trainer
from tensorflow.python.distribute import values

from terngrad_tf.distribute.private.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.strategies import SharedVariableReplicas

_ADVICE = (
    "Build the model, and make what `compile` gets (optimizer, metrics), inside"
    " `with strategy.scope():`"
)
# Strategies in whose scope nobody has been yet.
_unused = weakref.WeakSet()


def watch_scope(strategy):
    """Warns where a model is trained as if the strategy, which is new, were not there.

    Keras trains a model that was built outside of every scope in this process alone. Under a
    strategy, it runs one that holds other variables on all replicas, which then write them one
    after another. Both end without an error. Here

    * `compile` runs in the scope of the model's strategy, and takes no model or optimizer that
      was made outside;
    * `fit` and `evaluate` refuse weights to be trained and metrics that were made outside;
    * training outside of every scope warns while a strategy waits for its first use.
    """
    _unused.add(strategy)
    _wrap(keras_trainer.Trainer, "compile", _in_scope)
    for name in ("make_train_function", "make_test_function"):
        _wrap(keras_tf_trainer.TensorFlowTrainer, name, _checked)


def scope_entered(strategy):
    """Notes that something is made under a strategy."""
    _unused.discard(strategy)


def _wrap(owner, name, wrapper):
    stock = getattr(owner, name)
    if not getattr(stock, "watches_scope", False):
        wrapped = functools.wraps(stock)(wrapper(stock))
        wrapped.watches_scope = True
        setattr(owner, name, wrapped)


def _in_scope(stock):
    def compile_(self, *args, **kwargs):
        strategy = self.distribute_strategy
        if not isinstance(strategy.extended, SharedVariableReplicas):
            return stock(self, *args, **kwargs)
        _check_model(self)
        with strategy.scope():
            stock(self, *args, **kwargs)
        _check(strategy, "optimizer", getattr(self.optimizer, "variables", ()))

    return compile_


def _checked(stock):
    def make_function(self, force=False):
        strategy = self.distribute_strategy
        if isinstance(strategy.extended, SharedVariableReplicas):
            _check_model(self)
            _check(strategy, "metric", self.metrics_variables)
            if stock.__name__ == "make_train_function":
                _check(strategy, "model", self.trainable_variables)
        elif self._distribute_strategy is None and _unused:
            _unused.clear()
            warnings.warn(
                "This model is used without `TernGradStrategy`, in whose scope nothing is made yet."
                f" {_ADVICE}",
                stacklevel=3,
            )
        return stock(self, force)

    return make_function


def refuse_optimizers_from_outside(op_class):
    """Refuses an optimizer made elsewhere where `op_class` reduces gradients of several replicas.

    Each replica would count its steps. In loops of one's own nothing else notices it.
    """

    def checked(stock):
        def call(self, *args, **kwargs):
            strategy = tf.distribute.get_strategy()
            is_shared = strategy.num_replicas_in_sync > 1 and gradient_ops(strategy, op_class)
            if is_shared and self._distribution_strategy is not strategy:
                raise ValueError(
                    f"The optimizer {self.name!r} was made outside of the scope of the strategy."
                    f" {_ADVICE}"
                )
            return stock(self, *args, **kwargs)

        return call

    for name in ("build", "apply"):
        _wrap(keras_base_optimizer.BaseOptimizer, name, checked)


def _check_model(model):
    if model._distribute_strategy is None:
        raise ValueError(f"The model was built outside of the scope of the strategy. {_ADVICE}")


def _check(strategy, owner, variables):
    for variable in variables:
        value = variable.value if isinstance(variable, keras.Variable) else variable
        is_distributed = isinstance(value, values.DistributedVariable)
        if not is_distributed or value.distribute_strategy is not strategy:
            raise ValueError(
                f"The {owner}'s variable {variable.name!r} was made outside of the scope of the"
                f" strategy. {_ADVICE}"
            )
