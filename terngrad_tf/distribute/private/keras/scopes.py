"""Whether what trains under a strategy was made in its scope; Keras 3 does not ask."""

import warnings
import weakref

import keras
import tensorflow as tf
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from tensorflow.python.distribute import values

from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import variable_paths
from terngrad_tf.distribute.private.strategies.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.strategies.strategies import is_own

_ADVICE = (
    "Build the model, and make what `compile` gets (optimizer, metrics), inside"
    " `with strategy.scope():`"
)
# Strategies under which nothing was trained or evaluated yet.
_unused = weakref.WeakSet()


def watch_scope(strategy: tf.distribute.Strategy) -> None:
    """Lets training outside of every scope warn while the strategy, which is new, is unused."""
    _unused.add(strategy)


@patch(BaseTrainer, "compile")
def _compile_in_scope(stock, self, *args, **kwargs):
    """Runs `compile` in the scope of the model's strategy; refuses models made outside.

    Keras trains a model that was built outside of every scope in this process alone. Under a
    strategy, it runs one that holds other variables on all replicas, which then write them one
    after another. Both end without an error.
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
    """Refuses weights to be trained and metrics made outside; warns of a strategy nobody uses.

    Refuses, too, what a step cannot be, which it would show only while it is traced.
    """
    strategy = self.distribute_strategy
    is_training = stock.__name__ == "make_train_function"
    op = gradient_ops(strategy)
    if is_training and op is not None:
        op.check_model(
            bool(self.jit_compile), variable_paths(self.variables) if self.built else None
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
    """Refuses an optimizer made elsewhere where several replicas' gradients are reduced.

    Each replica would count its steps, and its rate's schedule would advance once a replica. In
    loops of one's own nothing else notices it.
    """
    strategy = tf.distribute.get_strategy()
    _unused.discard(strategy)
    is_shared = strategy.num_replicas_in_sync > 1 and gradient_ops(strategy)
    if is_shared and self._distribution_strategy is not strategy:
        raise ValueError(
            f"The optimizer {self.name!r} was made outside of the scope of the strategy. {_ADVICE}"
        )
    return stock(self, *args, **kwargs)


@patch(keras.Variable, "__init__")
def _note_variable(stock, self, *args, **kwargs):
    """Lets the op know all variables of its strategy, whichever optimizer trains them, or none."""
    stock(self, *args, **kwargs)
    op = gradient_ops(tf.distribute.get_strategy())
    if op is not None:
        op.note_variable(self.path)


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
