"""Histograms of weights, activations and ternary gradients for TensorBoard."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import tags
from terngrad_tf.training.board import Board
from terngrad_tf.training.callbacks import StepCounter
from terngrad_tf.training.triggers import Trigger


class Histograms(StepCounter):
    """Writes what each variable and each ternary gradient looks like, now and then.

    A histogram of each trainable variable; and, where the strategy recorded them in the last step,
    of each variable with a ternary gradient the fraction of zeros and a histogram of the values
    -scale, 0 and scale, both of the first replica.

    Args:
        first_step: steps done before `fit`.
        variables_due: rule of `triggers` for variables, of the number of steps done.
        gradients_due: rule for gradients, of the number of steps done before the last one.
        board: `Board`.
        statistics: callable that gives the strategy's `gradient_statistics`.
    """

    def __init__(
        self,
        first_step: int,
        variables_due: Trigger,
        gradients_due: Trigger,
        board: Board,
        statistics: Callable[[], Mapping[str, Any]],
    ):
        super().__init__(first_step)
        self._variables_due = variables_due
        self._gradients_due = gradients_due
        self._board = board
        self._statistics = statistics

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Writes what is due."""
        if self._variables_due(self.step):
            self._board.histograms(weights_of(self.model), self.step)
        # The optimizer counts a step as done after it has exchanged the step's gradients.
        if self._gradients_due(self.step - 1):
            for path, recorded in self._statistics().items():
                # Not so in a step with float gradients, which leaves the last record.
                if recorded.step == self.step - 1:
                    _write(self._board, path, recorded, self.step)


def _write(board, path, recorded, step):
    counts = recorded.negative, recorded.zero, recorded.positive
    values = -recorded.scale, 0.0, recorded.scale
    board.scalars({tags.ternary_sparsity(path): recorded.zero / sum(counts)}, step)
    board.counts(tags.ternary_gradients(path), list(zip(values, counts, strict=True)), step)


def weights_of(model: keras.Model) -> dict[str, Any]:
    """Trainable variables of a `keras.Model`, by the tags of their histograms."""
    return {tags.weights(variable.path): variable.value for variable in model.trainable_variables}


def write_network(model: keras.Model, images: tf.Tensor, board: Board, step: int) -> None:
    """Writes what a network's weights and its activations on some images look like.

    A histogram of each trainable variable; and of what each dense layer and each layer with an
    activation function gives, a histogram and the fraction of zeros.

    Args:
        model: `keras.Model`, of its layers.
        images: tensor [batch, height, width, channels].
        board: `Board`.
        step: steps done.
    """
    layers = [layer for layer in model.layers if _is_activation(layer)]
    outputs = keras.Model(model.input, [layer.output for layer in layers])(images, training=False)
    board.histograms(weights_of(model), step)
    for layer, values in zip(layers, tf.nest.flatten(outputs), strict=True):
        board.histograms({tags.activations(layer.name): values}, step)
        sparsity = tf.math.zero_fraction(values)
        board.scalars({tags.activation_sparsity(layer.name): sparsity}, step)


def _is_activation(layer):
    if isinstance(layer, keras.layers.ReLU):
        return True
    function = getattr(layer, "activation", None)
    return isinstance(layer, keras.layers.Dense) or function not in (
        None,
        keras.activations.linear,
    )
