"""Histograms of weights, activations and ternary gradients for TensorBoard."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common import tags
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.logs.triggers import Trigger


class Histograms(StepCounter):
    """Writes histograms of variables and ternary gradients regularly.

    For each ternary gradient that was recorded since the last look: the fraction of zeros and a
    histogram of the values -scale, 0 and scale, of the first replica.

    Args:
        variables_due: rule of the number of steps done.
        gradients_due: rule of the optimizer's step of a record, which counts no step that loss
            scaling skips, and exchanges instead of local steps.
        statistics: returns the strategy's `gradient_statistics`, or nothing between exchanges.
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
        self._known: dict[str, Any] = {}

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Writes due histograms."""
        if self._variables_due(self.step):
            self._board.histograms(weights_of(self.model), self.step)
        found = self._statistics()
        new = {path: record for path, record in found.items() if self._known.get(path) != record}
        self._known |= new
        if new and self._gradients_due(max(record.step for record in new.values())):
            for path, record in new.items():
                _write(self._board, path, record, self.step)


def _write(board, path, recorded, step):
    counts = recorded.negative, recorded.zero, recorded.positive
    values = -recorded.scale, 0.0, recorded.scale
    board.scalars({tags.ternary_sparsity(path): recorded.zero / sum(counts)}, step)
    board.counts(tags.ternary_gradients(path), list(zip(values, counts, strict=True)), step)


def weights_of(model: keras.Model) -> dict[str, Any]:
    """Returns a model's trainable variables by the tags of their histograms."""
    return {tags.weights(variable.path): variable.value for variable in model.trainable_variables}


def write_network(model: keras.Model, images: tf.Tensor, board: Board, step: int) -> None:
    """Writes histograms of a network's weights and of its activations on some images.

    Activations: outputs of dense layers and of layers with an activation function, with their
    fractions of zeros.
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
