"""A model that evaluates its loss at other weights for the optimizer: `SubspaceModel`."""

import typing
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.subspace.optimizers.subspace_bfgs import SubspaceBFGS

# The mixin calls methods of `keras.Model`.
_Base = keras.Model if typing.TYPE_CHECKING else object


class SubspaceTrainingMixin(_Base):
    """A `train_step` that passes the loss to `SubspaceBFGS` as a function of the weights.

    Mix it into a model class: `class Net(SubspaceTrainingMixin, keras.Model)`. Other optimizers
    train as usual.

    Trials run the forward pass with `training=True` on the same batch, with batch-norm statistics
    and random seeds from before the step, and change no variable.
    """

    def make_train_function(self, force: bool = False) -> Callable[..., Any]:
        """Creates the optimizer's state first, since inside the function each replica would.

        Raises:
            ValueError: the optimizer's state belongs to another basis.
        """
        optimizer = self.optimizer
        if isinstance(optimizer, SubspaceBFGS):
            if not optimizer.built:
                with self.distribute_strategy.scope():
                    optimizer.build(self.trainable_variables)
            optimizer.check_basis()
        return super().make_train_function(force)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Trains on one batch and returns the metrics."""
        optimizer = self.optimizer
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and isinstance(
            optimizer.inner_optimizer, SubspaceBFGS
        ):
            raise ValueError(
                "`SubspaceBFGS` scales no loss: compile with `auto_scale_loss=False` (float16 "
                "gradients may underflow), or train in float32 or mixed_bfloat16. Received: "
                f"{keras.config.dtype_policy().name}"
            )
        if not isinstance(optimizer, SubspaceBFGS):
            return super().train_step(data)
        optimizer.check_weights(self.trainable_variables)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        # With the values before the step, dropout repeats its masks.
        state = [tf.identity(v.value) for v in self.non_trainable_variables]
        with private.losses_as_parts():
            with tf.GradientTape() as tape:
                predictions = self(x, training=True)
                loss = self.compute_loss(x, y, predictions, sample_weight, training=True)
            mean = private.unscale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_variables)
        optimizer.step(loss, gradients, self._loss_at, (x, y, sample_weight, state))
        for metric in self.metrics:
            if metric.name == "loss":
                num_examples = tf.shape(tf.nest.flatten(x)[0])[0]
                metric.update_state(mean, sample_weight=num_examples)
        return self.compute_metrics(x, y, predictions, sample_weight=sample_weight)

    def _loss_at(self, values, data):
        x, y, sample_weight, state = data
        weights = [*self.trainable_variables, *self.non_trainable_variables]
        mapping = list(zip(weights, [*values, *state], strict=True))
        scope = keras.StatelessScope(mapping, collect_losses=True)
        with scope, private.losses_as_parts():
            return self.compute_loss(x, y, self(x, training=True), sample_weight, training=True)


@keras.saving.register_keras_serializable(package="terngrad_tf")
class SubspaceModel(SubspaceTrainingMixin, keras.Model):
    """A functional model that trains with `SubspaceBFGS`.

    Everything else works as for `keras.Model`, training with other optimizers included.

    Example:
        >>> model = SubspaceModel(network.inputs, network.outputs)
        >>> model.compile(SubspaceBFGS(subspace), "mse")
        >>> history = model.fit(x, y, batch_size=512, verbose=0)

    Args:
        inputs: input of a functional or sequential model, or a structure of them.
        outputs: its output, or a structure of them.
        name: name of the model.
    """
