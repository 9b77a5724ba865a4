"""Passes the noise of rounding in reduced gradients to an optimizer's updates, and averages it.

The exchange knows its variance if gradients are rotated; see `second_moments` for its use.
"""

import functools
import typing
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.optimizers import base_optimizer as keras_base_optimizer

from terngrad_tf import ternary
from terngrad_tf.distribute.private.keras.second_moments import update_of
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.accumulators import updating_optimizers
from terngrad_tf.distribute.private.replicas.devices import variable_paths
from terngrad_tf.distribute.private.strategies.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.slices import as_dense


class Rounded(typing.NamedTuple):
    """A reduced gradient, with the noise for which an update corrects.

    Attributes:
        gradient: dense tensor.
        noise: float32 `[blocks]`, the variance of each element of a block.
    """

    gradient: Any
    noise: Any


class RoundingNoise(keras.layers.Layer):
    """The averages w of an optimizer's weights.

    Keras saves a layer separately from the optimizer's variables: plain Keras loads such files
    without this layer, and its files give zeros.

    Args:
        indices: positions of the weights with rounded gradients.
        num_averages: averages per weight.

    Attributes:
        averages: `[averages, blocks]` for each weight with rounded gradients.
        is_current: False if `grad_bits="auto"` took floats: averages of an earlier run no longer
            decay and are not saved.
    """

    def __init__(
        self, optimizer: Any, weights: Sequence[Any], indices: Sequence[int], num_averages: int
    ) -> None:
        super().__init__(name="rounding_noise", trainable=False, dtype="float32")
        self.indices = tuple(indices)
        averages = []
        for index in indices:
            weight = weights[index]
            blocks = len(ternary.block_sizes(weight.shape.num_elements()))
            # One per device, like the optimizer's own variables.
            extended = optimizer._distribution_strategy.extended
            with extended.colocate_vars_with(weight):
                averages.append(
                    keras.Variable(
                        "zeros",
                        shape=[num_averages, blocks],
                        dtype="float32",
                        trainable=False,
                        name=f"rounding_noise_{index}",
                    )
                )
        self.averages = averages
        self.is_current = True
        self.built = True

    def average_of(self, index: int) -> keras.Variable | None:
        """Returns the variable of a weight, or None if its gradients are not rounded."""
        return self.averages[self.indices.index(index)] if index in self.indices else None

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        # Without noise, a `tf.train.Checkpoint` of plain Keras, which has no averages, must match.
        children = super()._trackable_children(save_type, **kwargs)
        is_unused = tf.executing_eagerly() and not any(map(np.any, self._saved()))
        return {} if is_unused and save_type == "checkpoint" else children

    def _saved(self):
        """The averages as they are saved."""
        values = [average.numpy() for average in self.averages]
        return values if self.is_current else [np.zeros_like(value) for value in values]

    def save_own_variables(self, store: Any) -> None:
        for index, value in zip(self.indices, self._saved(), strict=True):
            store[str(index)] = value

    def load_own_variables(self, store: Any) -> None:
        names = list(store.keys())
        for index, average in zip(self.indices, self.averages, strict=True):
            saved = store[str(index)] if str(index) in names else None
            fits = saved is not None and tuple(saved.shape) == tuple(average.shape)
            average.assign(saved if fits else tf.zeros(average.shape))


def noise_variables(optimizer: Any) -> list[keras.Variable]:
    """Returns the averages of noise kept by an optimizer or its parts."""
    parts = updating_optimizers(optimizer)
    kept = [getattr(part, "rounding_noise", None) for part in parts]
    return [average for noise in kept if noise is not None for average in noise.averages]


def with_noise(
    optimizer: Any, gradients: Sequence[Any], noise: Sequence[Any], variables: Sequence[Any]
) -> list[Any]:
    """Wraps reduced gradients in `Rounded` if the optimizer's update corrects for their noise.

    Args:
        gradients: tensors or `tf.IndexedSlices`.
        noise: float32 `[blocks]` or None (unknown) for each gradient.
        variables: the variable that each gradient updates.
    """
    kept = getattr(optimizer, "rounding_noise", None)
    if kept is None:
        return list(gradients)
    indices = [optimizer._get_variable_index(variable) for variable in variables]
    noise = [None if kept.average_of(i) is None else n for i, n in zip(indices, noise, strict=True)]
    if set(kept.indices) & set(indices):
        kept.is_current = any(n is not None for n in noise)
    return [
        # Rows of rounded gradients are distinct.
        g if n is None else Rounded(as_dense(g, v.shape), n)
        for g, n, v in zip(gradients, noise, variables, strict=True)
    ]


def clipped_share(gradient: tf.Tensor, clipped: tf.Tensor) -> tf.Tensor:
    """Returns the share of a gradient's squares, and of its noise, that clipping leaves."""
    before, after = (tf.reduce_sum(tf.square(tf.cast(g, tf.float32))) for g in (gradient, clipped))
    return tf.math.divide_no_nan(after, before)


@patch(keras_base_optimizer.BaseOptimizer, "build")
def _keep_noise(stock, self, variables):
    """Gives optimizers averages of noise, saved and loaded like their other variables."""
    stock(self, variables)
    strategy, update = self._distribution_strategy, update_of(self)
    op = None if strategy is None or update is None else gradient_ops(strategy)
    # Without rotation the variance is not known; gradients of local steps are not exchanged.
    is_known = op is not None and op.quantization.rotate
    if not is_known or (is_own(strategy) and strategy.extended.makes_own_variables):
        return
    weights = [v.value if isinstance(v, keras.Variable) else v for v in variables]
    positions = op.quantization.ternary_positions(weights, variable_paths(variables))
    if positions:
        self.rounding_noise = RoundingNoise(self, weights, positions, update.num_averages(self))


@patch(keras_tf_optimizer.TFOptimizer, "_distributed_tf_update_step")
def _update_without_noise(stock, self, distribution, grads_and_vars, learning_rate):
    """Corrects updates for known noise; other gradients take the stock path."""
    others = []
    for gradient, variable in grads_and_vars:
        if isinstance(gradient, Rounded):
            distribution.extended.update(
                variable,
                functools.partial(_update, self),
                args=(*gradient, learning_rate),
                group=False,
            )
        else:
            others.append((gradient, variable))
    stock(self, distribution, others, learning_rate)


def _update(optimizer, weight, gradient, noise, learning_rate):
    """Runs `update_step` for one weight on one device."""
    kind: Any = update_of(optimizer)
    update = kind(optimizer, weight, gradient, learning_rate, noise)
    kept = optimizer.rounding_noise.average_of(update.index)
    # A restart of an optimizer does not reset these.
    has_begun = tf.cast(optimizer.iterations > 0, tf.float32)
    before = tf.unstack(has_begun * tf.convert_to_tensor(kept))
    averages = [
        decay * average + share * noise
        for average, (decay, share) in zip(before, update.recursions, strict=True)
    ]
    with update.around(averages) as rate:
        optimizer.update_step(gradient, weight, rate)
    optimizer.assign(kept, tf.stack(averages))
