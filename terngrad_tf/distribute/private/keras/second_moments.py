"""Lets Keras' optimizers divide by averages of squares without the noise of rounding.

Optimizers that divide by the root of an average of squares take shorter steps for noisy gradients.
The average w of the noise's variance n is the excess in the average of squares:

    v  = decay v + share g^2            the optimizer's own, saved as in Keras
    w  = decay w + share n              one number for each block of a gradient
    v' = max(v - w, v / 10)             the value by which the update should divide

Keras' `update_step` averages and divides at once. So its accumulator is lowered by `(v - v') /
decay` before, to arrive at v', and set to v afterwards.

Lion and Muon take steps of one length, of which noise leaves less along the gradient; their rate is
raised. Not corrected: SGD, whose mean step noise leaves alone; Ftrl, whose sums of squares must add
up over all steps; Adadelta, which divides two averages with the same noise.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import ternary

# Of an average of squares.
_LEAST_SHARE = 0.1


class Update:
    """An update of one weight by an optimizer whose `v = beta_2 v + (1 - beta_2) g^2`: Adam's.

    Args:
        noise: float32 `[blocks]`, the variance of the gradient's noise.
    """

    slots, decay = "_velocities", "beta_2"

    def __init__(
        self, optimizer: Any, weight: Any, gradient: Any, learning_rate: Any, noise: tf.Tensor
    ) -> None:
        self.optimizer = optimizer
        self.weight = weight
        self.index = optimizer._get_variable_index(weight)
        self.gradient = tf.cast(gradient, weight.dtype)
        self.learning_rate = tf.cast(learning_rate, weight.dtype)
        self.noise = noise

    @classmethod
    def num_averages(cls, optimizer: Any) -> int:
        """Returns the number of averages of noise that an optimizer needs."""
        return 1

    @property
    def recursions(self) -> list[tuple[Any, Any]]:
        """Decay and share of each average of noise."""
        decay = self.number(self.decay)
        return [(decay, 1 - decay)]

    def number(self, name: str) -> tf.Tensor:
        return tf.cast(getattr(self.optimizer, name), tf.float32)

    def slot(self, name: str) -> keras.Variable:
        return getattr(self.optimizer, name)[self.index]

    def value(self, name: str) -> tf.Tensor:
        """Returns a slot's value: Keras' `slot + x` takes an x of shape `[0, n]` for a bias."""
        return tf.convert_to_tensor(self.slot(name))

    @functools.cached_property
    def squares(self) -> tf.Tensor:
        """The average of squares v after the update, computed like the optimizer's."""
        slot = self.value(self.slots)
        return slot + (tf.square(self.gradient) - slot) * (1 - getattr(self.optimizer, self.decay))

    def excess(self, averages: list[tf.Tensor]) -> tf.Tensor:
        """Returns the excess in the average of squares; arguments as in `around`."""
        return _excess(self.squares, self.spread(averages[0]))

    def spread(self, noise: tf.Tensor) -> tf.Tensor:
        """Converts noise per block to noise per element, in the weight's type."""
        return tf.cast(ternary.spread(noise, self.gradient.shape), self.gradient.dtype)

    @contextlib.contextmanager
    def around(self, averages: list[tf.Tensor]) -> Iterator[Any]:
        """Context of `update_step` that corrects the averages it sees; yields its learning rate.

        Args:
            averages: averages of noise after this step, float32 `[blocks]`.
        """
        decay = getattr(self.optimizer, self.decay)
        with self.presented(self.slot(self.slots), self.squares, self.excess(averages), decay):
            yield self.learning_rate

    @contextlib.contextmanager
    def presented(
        self, slot: Any, after: tf.Tensor, excess: tf.Tensor, decay: Any
    ) -> Iterator[None]:
        """Lowers a slot before the update that would make it `after`; then sets it to `after`."""
        shown = tf.math.divide_no_nan(excess, tf.cast(decay, excess.dtype))
        self.optimizer.assign(slot, slot - shown)
        yield
        self.optimizer.assign(slot, after)


def _longer(squares, noise):
    """Returns the factor by which noise lengthens vectors with these mean or summed squares."""
    less = squares - _excess(squares, noise)
    return tf.where(less > 0, tf.sqrt(squares / tf.where(less > 0, less, 1)), 1)


def _excess(squares, noise):
    """Returns the part of an average of squares due to noise."""
    return tf.maximum(tf.minimum(noise, (1 - _LEAST_SHARE) * squares), 0)


class _Lamb(Update):
    """Like Adam, but the rate is divided by the norm of all steps together, without noise."""

    @contextlib.contextmanager
    def around(self, averages):
        rate = self.learning_rate * self._longer(averages[0])
        with super().around(averages):
            yield rate

    def _longer(self, average):
        optimizer, dtype = self.optimizer, self.gradient.dtype
        step = tf.cast(optimizer.iterations + 1, dtype)
        power_1 = tf.pow(tf.cast(optimizer.beta_1, dtype), step)
        power_2 = tf.pow(tf.cast(optimizer.beta_2, dtype), step)
        mean, squares = self.value("_momentums"), self.squares
        mean = (mean + (self.gradient - mean) * (1 - optimizer.beta_1)) / (1 - power_1)
        squares = (squares - _excess(squares, self.spread(average))) / (1 - power_2)
        steps = mean / (tf.sqrt(squares) + optimizer.epsilon)
        length = tf.reduce_sum(tf.square(steps))
        # The noise of all steps so far in the mean.
        share = (1 - optimizer.beta_1) / (1 + optimizer.beta_1) * (1 + power_1) / (1 - power_1)
        noise = tf.math.divide_no_nan(share * self.spread(self.noise), squares)
        scales = tf.reduce_any(tf.not_equal(self.weight, 0))
        return tf.where(scales, _longer(length, tf.reduce_sum(noise)), 1)


class _Muon(Update):
    """Like Adam, or orthogonal steps in the direction `u = g + beta m` of `m = beta m + g`.

    An orthogonal step's part along u without noise is shorter by about the factor by which noise
    lengthens u; this factor multiplies the rate.
    """

    slots, decay = "adam_velocities", "adam_beta_2"

    @property
    def _is_orthogonal(self):
        return self.slot(self.slots) is None

    @property
    def recursions(self):
        if not self._is_orthogonal:
            return super().recursions
        # The noise in m.
        return [(self.number("momentum") ** 2, tf.constant(1.0))]

    @contextlib.contextmanager
    def around(self, averages):
        if not self._is_orthogonal:
            with super().around(averages) as rate:
                yield rate
            return
        beta, mean, noise = self.optimizer.momentum, self.slot("momentums"), averages[0]
        direction = self.gradient + beta * mean
        if self.optimizer.nesterov:
            direction = self.gradient + beta * direction
            before = noise - self.noise
            noise = (1 + beta) ** 2 * self.noise + beta**2 * before
        length = tf.reduce_sum(tf.square(direction))
        noise = tf.reduce_sum(self.spread(noise))
        yield self.learning_rate * _longer(length, noise)


class _Lion(Update):
    """Steps of one length in the direction of the signs of `c = beta_1 m + (1 - beta_1) g`.

    Noise turns signs of small elements, which shortens the mean step by about the factor by which
    noise lengthens c; this factor multiplies each block's rate.
    """

    @property
    def recursions(self):
        # The noise in m.
        beta = self.number("beta_2")
        return [(beta**2, (1 - beta) ** 2)]

    @contextlib.contextmanager
    def around(self, averages):
        optimizer, ((decay, share),) = self.optimizer, self.recursions
        mean, beta = self.slot("_momentums"), optimizer.beta_1
        squares = ternary.mean_of_blocks(tf.square(beta * mean + (1 - beta) * self.gradient))
        before = tf.math.divide_no_nan(averages[0] - share * self.noise, decay)
        noise = beta**2 * before + (1 - beta) ** 2 * self.noise
        factor = _longer(tf.cast(squares, tf.float32), noise)
        yield self.learning_rate * self.spread(factor)


class _RMSprop(Update):
    """`v = rho v + (1 - rho) g^2`; if centered, `v - m^2`, with the mean m of gradients."""

    decay = "rho"

    @classmethod
    def num_averages(cls, optimizer: Any) -> int:
        return 2 if optimizer.centered else 1

    @property
    def recursions(self):
        rho = self.number("rho")
        # The second average is the noise in m.
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


class _Adagrad(Update):
    """`v = v + g^2`, starting from an initial value without noise."""

    @property
    def recursions(self):
        return [(1.0, 1.0)]

    @contextlib.contextmanager
    def around(self, averages):
        slot = self.slot("_accumulators")
        squares = self.value("_accumulators") + tf.square(self.gradient)
        start = tf.cast(self.optimizer.initial_accumulator_value, squares.dtype)
        excess = _excess(squares - start, self.spread(averages[0]))
        with self.presented(slot, squares, excess, 1.0):
            yield self.learning_rate


class _Adamax(Update):
    """`u = max(beta_2 u, |g|)`, by which the mean m of gradients is divided.

    Noise enlarges u by about 3 times the variance, found by trial. `update_step` takes the maximum
    itself, so it sees an enlarged mean instead of a smaller u.
    """

    @contextlib.contextmanager
    def around(self, averages):
        optimizer, dtype = self.optimizer, self.gradient.dtype
        step = tf.cast(optimizer.iterations + 1, tf.float32)
        noise = 3 * averages[0] / (1 - tf.pow(self.number("beta_2"), step))
        largest = tf.maximum(optimizer.beta_2 * self.slot("_u"), tf.abs(self.gradient))
        squares = tf.square(largest)
        seen = tf.sqrt(squares - _excess(squares, self.spread(noise)))
        slot, mean = self.slot("_m"), self.value("_m")
        mean += (self.gradient - mean) * (1 - optimizer.beta_1)
        epsilon = tf.cast(optimizer.epsilon, dtype)
        shown = mean * (largest + epsilon) / (seen + epsilon)
        with self.presented(slot, mean, mean - shown, optimizer.beta_1):
            yield self.learning_rate


class _Adafactor(Update):
    """`v = beta_2 v + (1 - beta_2) g^2` of each row and column, where `beta_2 = 1 - t^decay`.

    Steps whose root mean square exceeds a threshold are shortened; their noise must not count. In
    the first step beta_2 is 0: a change of the average has no effect.
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
        """Returns the root mean square of the step divided by its value without noise."""
        squares, *columns = seen
        if columns:
            rows = squares / tf.reduce_mean(squares, -1, keepdims=True)
            squares = rows[..., tf.newaxis] * columns[0][..., tf.newaxis, :]
        # Weights that got no gradient have zeros.
        squares = tf.maximum(squares, 1e-30)
        steps = tf.reduce_mean(tf.square(self.gradient) / squares)
        return _longer(steps, tf.reduce_mean(self.spread(self.noise) / squares))


_optimizers = keras.optimizers
_UPDATES: dict[type, type[Update]] = {
    _optimizers.Adam: Update,
    _optimizers.Nadam: Update,
    _optimizers.Lamb: _Lamb,
    _optimizers.Muon: _Muon,
    _optimizers.Lion: _Lion,
    _optimizers.RMSprop: _RMSprop,
    _optimizers.Adagrad: _Adagrad,
    _optimizers.Adamax: _Adamax,
    _optimizers.Adafactor: _Adafactor,
}
# ScheduleFreeAdamW is missing in the oldest release.
if hasattr(_optimizers, "ScheduleFreeAdamW"):
    _UPDATES[_optimizers.ScheduleFreeAdamW] = Update


def takes_orthogonal_steps(optimizer: Any) -> bool:
    """Returns True for Muon, whose steps make directions of noise as long as all others."""
    return update_of(optimizer) is _Muon


def update_of(optimizer: Any) -> type[Update] | None:
    """Returns the class that corrects an optimizer's updates, or None for uncorrected ones."""
    for kind, update in _UPDATES.items():
        if isinstance(optimizer, kind) and type(optimizer).update_step is kind.update_step:
            return update
    return None
