"""Second moments of Keras optimizers without the variance that rounding added to gradients.

Optimizers that divide by the root of an average of squares take shorter steps if gradients are
noisy. Of rotated gradients that were rounded, the variance n of the noise is known, so its average w,
by the same recursion, is what the average of squares holds too much:

    v  = decay v + share g^2            the optimizer's own, which is saved as Keras saves it
    w  = decay w + share n              one number for each block of a gradient
    v' = max(v - w, v / 10)             what the update is to divide by

Keras' `update_step` averages and divides at once. So before it runs, its accumulator gets the value
from which it arrives at v', which is `(v - v') / decay` less; and v after it.
"""

import contextlib
import functools
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.optimizers import base_optimizer as keras_base_optimizer

from terngrad_tf import ternary
from terngrad_tf.distribute.private.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.devices import variable_paths
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies import is_own

# The share of an average of squares that is kept however noisy it is taken to be.
_LEAST_SHARE = 0.1


class Rounded(typing.NamedTuple):
    """A reduced gradient on its way to an update, which corrects for the noise in it.

    Attributes:
        gradient: tensor.
        noise: float32 tensor `[blocks]`, the variance of the noise in each element of a block.
    """

    gradient: Any
    noise: Any


class RoundingNoise(keras.layers.Layer):
    """The averages w of an optimizer's weights.

    A layer, as Keras saves those that it finds in an optimizer beside the optimizer's own variables:
    so files with them can be loaded without them, and those of plain Keras give zeros.

    Args:
        optimizer: built for the weights.
        weights: list of them.
        indices: positions of those whose gradients are rounded.
        num_averages: of each.
    """

    def __init__(
        self, optimizer: Any, weights: Sequence[Any], indices: Sequence[int], num_averages: int
    ) -> None:
        super().__init__(name="rounding_noise", trainable=False, dtype="float32")
        self._indices = tuple(indices)
        averages = []
        for index in indices:
            weight = weights[index]
            blocks = len(ternary.block_sizes(weight.shape.num_elements()))
            # Beside its weight, as the optimizer's own variables are: one a device.
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
        self.built = True

    def average_of(self, index: int) -> keras.Variable | None:
        """Those of a weight, `[averages, blocks]`; None where its gradients are not rounded."""
        return self.averages[self._indices.index(index)] if index in self._indices else None

    def save_own_variables(self, store: Any) -> None:
        for index, average in zip(self._indices, self.averages, strict=True):
            store[str(index)] = average.numpy()

    def load_own_variables(self, store: Any) -> None:
        names = list(store.keys())
        for index, average in zip(self._indices, self.averages, strict=True):
            saved = store[str(index)] if str(index) in names else None
            fits = saved is not None and tuple(saved.shape) == tuple(average.shape)
            average.assign(saved if fits else tf.zeros(average.shape))


class _Update:
    """An update of one weight by an optimizer whose `v = beta_2 v + (1 - beta_2) g^2`: Adam's.

    Args:
        optimizer: a Keras optimizer.
        weight: what `update_step` is given.
        gradient: likewise.
        learning_rate: likewise.
        noise: float32 tensor `[blocks]` of the gradient.
    """

    slots, decay = "_velocities", "beta_2"

    def __init__(self, optimizer, weight, gradient, learning_rate, noise):
        self.optimizer = optimizer
        self.weight = weight
        self.index = optimizer._get_variable_index(weight)
        self.gradient = tf.cast(gradient, weight.dtype)
        self.learning_rate = tf.cast(learning_rate, weight.dtype)
        self.noise = noise

    @classmethod
    def num_averages(cls, optimizer: Any) -> int:
        """How many averages of noise an optimizer needs."""
        return 1

    @classmethod
    def suits(cls, optimizer: Any, weight: Any) -> bool:
        """Whether the optimizer keeps squares of a weight's gradients."""
        return True

    @property
    def recursions(self) -> list[tuple[Any, Any]]:
        """Decay and share of each average of noise."""
        decay = self.number(self.decay)
        return [(decay, 1 - decay)]

    def number(self, name: str) -> tf.Tensor:
        return tf.cast(getattr(self.optimizer, name), tf.float32)

    def slot(self, name: str) -> keras.Variable:
        return getattr(self.optimizer, name)[self.index]

    @functools.cached_property
    def squares(self) -> tf.Tensor:
        """The average of squares v after the update, as the optimizer computes it."""
        slot = self.slot(self.slots)
        return slot + (tf.square(self.gradient) - slot) * (1 - getattr(self.optimizer, self.decay))

    def excess(self, averages: list[tf.Tensor]) -> tf.Tensor:
        """What is to be taken out of it; arguments as for `around`."""
        return _excess(self.squares, self.spread(averages[0]))

    def spread(self, noise: tf.Tensor) -> tf.Tensor:
        """Noise by block to noise by element, of the weight's type."""
        return tf.cast(ternary.spread(noise, self.gradient.shape), self.gradient.dtype)

    @contextlib.contextmanager
    def around(self, averages: list[tf.Tensor]) -> Iterator[Any]:
        """Around `update_step`: corrects what it sees; gives the rate for it.

        Args:
            averages: float32 tensors `[blocks]`, those of noise after this step.
        """
        decay = getattr(self.optimizer, self.decay)
        with self.presented(self.slot(self.slots), self.squares, self.excess(averages), decay):
            yield self.learning_rate

    @contextlib.contextmanager
    def presented(self, slot: Any, after: tf.Tensor, excess: tf.Tensor, decay: Any) -> Iterator[None]:
        """Lets an update that makes `after` of a slot see it with less; `after` stays in it."""
        shown = tf.math.divide_no_nan(excess, tf.cast(decay, excess.dtype))
        self.optimizer.assign(slot, slot - shown)
        yield
        self.optimizer.assign(slot, after)


def _excess(squares, noise):
    """What is to be taken out of an average of squares."""
    return tf.maximum(tf.minimum(noise, (1 - _LEAST_SHARE) * squares), 0)


class _Lamb(_Update):
    """Adam's, and the rate is divided by the length of all steps together, without noise."""

    @contextlib.contextmanager
    def around(self, averages):
        rate = self.learning_rate * self._longer(averages[0])
        with super().around(averages):
            yield rate

    def _longer(self, average):
        optimizer, dtype = self.optimizer, self.gradient.dtype
        step = tf.cast(optimizer.iterations + 1, dtype)
        power_1, power_2 = (tf.pow(tf.cast(b, dtype), step) for b in (optimizer.beta_1, optimizer.beta_2))
        mean, squares = self.slot("_momentums"), self.squares
        mean = (mean + (self.gradient - mean) * (1 - optimizer.beta_1)) / (1 - power_1)
        squares = (squares - _excess(squares, self.spread(average))) / (1 - power_2)
        steps = mean / (tf.sqrt(squares) + optimizer.epsilon)
        length = tf.reduce_sum(tf.square(steps))
        # Of what all steps so far have in the mean.
        share = (1 - optimizer.beta_1) / (1 + optimizer.beta_1) * (1 + power_1) / (1 - power_1)
        noise = tf.math.divide_no_nan(share * self.spread(self.noise), squares)
        less = length - _excess(length, tf.reduce_sum(noise))
        scales = tf.logical_and(tf.reduce_any(tf.not_equal(self.weight, 0)), less > 0)
        return tf.where(scales, tf.sqrt(length / tf.where(scales, less, 1)), 1)


class _Muon(_Update):
    """Adam's, of the weights that are trained by it; others have no squares."""

    slots, decay = "adam_velocities", "adam_beta_2"

    @classmethod
    def suits(cls, optimizer, weight):
        return optimizer._should_use_adamw(weight)


class _RMSprop(_Update):
    """`v = rho v + (1 - rho) g^2`; centered, it divides by `v - m^2` with the mean m of gradients."""

    decay = "rho"

    @classmethod
    def num_averages(cls, optimizer):
        return 2 if optimizer.centered else 1

    @property
    def recursions(self):
        rho = self.number("rho")
        # The second is of the noise in m.
        return [(rho, 1 - rho), (rho**2, (1 - rho) ** 2)][: self.num_averages(self.optimizer)]

    @functools.cached_property
    def squares(self):
        rho = self.optimizer.rho
        return rho * self.slot("_velocities") + (1 - rho) * tf.square(self.gradient)

    def excess(self, averages):
        if not self.optimizer.centered:
            return super().excess(averages)
        rho = self.optimizer.rho
        mean = rho * self.slot("_average_gradients") + (1 - rho) * self.gradient
        return _excess(self.squares - tf.square(mean), self.spread(averages[0] - averages[1]))


class _Adagrad(_Update):
    """`v = v + g^2`, from an initial value on, in which there is no noise."""

    @property
    def recursions(self):
        return [(1.0, 1.0)]

    @contextlib.contextmanager
    def around(self, averages):
        slot = self.slot("_accumulators")
        squares = slot + tf.square(self.gradient)
        start = tf.cast(self.optimizer.initial_accumulator_value, squares.dtype)
        excess = _excess(squares - start, self.spread(averages[0]))
        with self.presented(slot, squares, excess, 1.0):
            yield self.learning_rate


class _Adamax(_Update):
    """`u = max(beta_2 u, |g|)`, by which the mean m of gradients is divided.

    No average of squares, but noise makes it larger: by about 3 times the variance, found by trial.
    As `update_step` takes the largest itself, the mean is shown to it as much larger as u should be
    smaller.
    """

    @contextlib.contextmanager
    def around(self, averages):
        optimizer, dtype = self.optimizer, self.gradient.dtype
        step = tf.cast(optimizer.iterations + 1, tf.float32)
        noise = 3 * averages[0] / (1 - tf.pow(self.number("beta_2"), step))
        largest = tf.maximum(optimizer.beta_2 * self.slot("_u"), tf.abs(self.gradient))
        squares = tf.square(largest)
        seen = tf.sqrt(squares - _excess(squares, self.spread(noise)))
        slot = self.slot("_m")
        mean = slot + (self.gradient - slot) * (1 - optimizer.beta_1)
        epsilon = tf.cast(optimizer.epsilon, dtype)
        shown = mean * (largest + epsilon) / (seen + epsilon)
        with self.presented(slot, mean, mean - shown, optimizer.beta_1):
            yield self.learning_rate


class _Adafactor(_Update):
    """`v = beta_2 v + (1 - beta_2) g^2` of each row and column, where `beta_2 = 1 - t^decay`.

    Steps are made shorter where their root mean square is above a threshold, by as much as the noise
    in them adds to it too short. In the first step beta_2 is 0: nothing that is in the average can
    be seen.
    """

    @property
    def recursions(self):
        return [(self._beta_2, 1 - self._beta_2)]

    @property
    def _beta_2(self):
        step = tf.cast(self.optimizer.iterations + 1, tf.float32)
        return 1 - tf.pow(step, self.optimizer.beta_2_decay)

    @contextlib.contextmanager
    def around(self, averages):
        optimizer, beta_2 = self.optimizer, tf.cast(self._beta_2, self.gradient.dtype)
        squares = tf.square(self.gradient) + optimizer.epsilon_1
        noise = self.spread(averages[0])
        slots = [("_r", [-1]), ("_c", [-2])] if squares.shape.rank > 1 else [("_v", [])]
        seen = []
        with contextlib.ExitStack() as stack:
            for name, axes in slots:
                slot = self.slot(name)
                after = beta_2 * slot + (1 - beta_2) * tf.reduce_mean(squares, axes)
                excess = _excess(after, tf.reduce_mean(noise, axes)) * tf.sign(beta_2)
                seen.append(after - excess)
                stack.enter_context(self.presented(slot, after, excess, beta_2))
            threshold = optimizer.clip_threshold
            optimizer.clip_threshold = threshold * self._noisier(seen)
            stack.callback(setattr, optimizer, "clip_threshold", threshold)
            yield self.learning_rate

    def _noisier(self, seen):
        """Root mean square of the step over that without noise."""
        squares, *columns = seen
        if columns:
            rows = squares / tf.reduce_mean(squares, -1, keepdims=True)
            squares = rows[..., tf.newaxis] * columns[0][..., tf.newaxis, :]
        # Of weights that got no gradient.
        squares = tf.maximum(squares, 1e-30)
        steps = tf.reduce_mean(tf.square(self.gradient) / squares)
        less = steps - _excess(steps, tf.reduce_mean(self.spread(self.noise) / squares))
        return tf.where(less > 0, tf.sqrt(steps / tf.where(less > 0, less, 1)), 1)


_optimizers = keras.optimizers
_UPDATES: dict[type, type[_Update]] = {
    _optimizers.Adam: _Update,
    _optimizers.Nadam: _Update,
    _optimizers.Lamb: _Lamb,
    _optimizers.Muon: _Muon,
    _optimizers.RMSprop: _RMSprop,
    _optimizers.Adagrad: _Adagrad,
    _optimizers.Adamax: _Adamax,
    _optimizers.Adafactor: _Adafactor,
}
# Not in the oldest release.
if hasattr(_optimizers, "ScheduleFreeAdamW"):
    _UPDATES[_optimizers.ScheduleFreeAdamW] = _Update


def update_of(optimizer: Any) -> type[_Update] | None:
    """How an optimizer's updates are corrected; None where they are not, or not Keras' own."""
    for kind, update in _UPDATES.items():
        if isinstance(optimizer, kind) and type(optimizer).update_step is kind.update_step:
            return update
    return None


def noise_variables(optimizer: Any) -> list[keras.Variable]:
    """What is kept of noise beside an optimizer's own variables."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    noise = getattr(optimizer, "rounding_noise", None)
    return [] if noise is None else list(noise.averages)


def with_noise(
    optimizer: Any, gradients: Sequence[Any], noise: Sequence[Any], variables: Sequence[Any]
) -> list[Any]:
    """Reduced gradients, those whose noise an optimizer's update corrects for as `Rounded`.

    Args:
        optimizer: a Keras optimizer, built.
        gradients: list of tensors or `tf.IndexedSlices`.
        noise: for each a float32 tensor `[blocks]` or None, where it is not known.
        variables: for each that which it updates.
    """
    kept = getattr(optimizer, "rounding_noise", None)
    if kept is None:
        return list(gradients)
    indices = [optimizer._get_variable_index(variable) for variable in variables]
    return [
        g if n is None or kept.average_of(i) is None else Rounded(g, n)
        for g, n, i in zip(gradients, noise, indices, strict=True)
    ]


def clipped_share(gradient: tf.Tensor, clipped: tf.Tensor) -> tf.Tensor:
    """The share of a gradient's squares that clipping leaves, of its noise too; float32 scalar."""
    before, after = (tf.reduce_sum(tf.square(tf.cast(g, tf.float32))) for g in (gradient, clipped))
    return tf.math.divide_no_nan(after, before)


@patch(keras_base_optimizer.BaseOptimizer, "build")
def _keep_noise(stock, self, variables):
    """Gives optimizers averages of noise, which are made, saved and loaded as their others are."""
    stock(self, variables)
    strategy, update = self._distribution_strategy, update_of(self)
    op = gradient_ops(strategy)
    if update is None or op is None or (is_own(strategy) and strategy.extended.makes_own_variables):
        return
    weights = [getattr(v, "value", v) for v in variables]
    positions = op.quantization.noisy_positions(weights, variable_paths(variables))
    positions = [i for i in positions if update.suits(self, variables[i])]
    if positions:
        self.rounding_noise = RoundingNoise(self, weights, positions, update.num_averages(self))


@patch(keras_tf_optimizer.TFOptimizer, "_distributed_tf_update_step")
def _update_without_noise(stock, self, distribution, grads_and_vars, learning_rate):
    """Corrects updates by gradients of which the noise is known, which reach no other function."""
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
    """`update_step` of one weight, on one device."""
    update = update_of(optimizer)(optimizer, weight, gradient, learning_rate, noise)
    kept = optimizer.rounding_noise.average_of(update.index)
    before = tf.unstack(tf.convert_to_tensor(kept))
    averages = [
        decay * average + share * noise
        for average, (decay, share) in zip(before, update.recursions, strict=True)
    ]
    with update.around(averages) as rate:
        optimizer.update_step(gradient, weight, rate)
    optimizer.assign(kept, tf.stack(averages))
