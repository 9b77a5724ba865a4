"""The training loss: cross-entropy of each output, weighted, plus regularization."""

from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import models

_ENTROPY, _ACCURACY = "entropy_loss", "precision_at_1"


def compile_arguments(net: str, label_smoothing: float) -> dict[str, Any]:
    """Returns losses and metrics of a network as arguments of `keras.Model.compile`.

    The loss is `sum_o w_o * mean(cross_entropy(targets, logits_o))` over the outputs o of the
    network, with `targets = (1 - s) * onehot(label) + s / num_classes` and label smoothing s from 0
    to below 1. Keras adds regularization. (MindSpore's tutorial spreads 0.1 over the other labels
    only: `0.1 * num_classes / (num_classes - 1)` here.)

    `cross_entropy` and `precision_at_1` read the metrics.
    """
    function = _cross_entropy_of_output(label_smoothing)
    weights = list(models.output_loss_weights(net).values())
    metrics = [[keras.metrics.MeanMetricWrapper(function, name=_ENTROPY)] for _ in weights]
    metrics[0].append(keras.metrics.SparseCategoricalAccuracy(name=_ACCURACY))
    return {
        "loss": [function] * len(weights),
        "loss_weights": weights,
        # Keras 3.12 rejects a list of lists for a single output.
        "metrics": metrics if len(weights) > 1 else metrics[0],
    }


def with_targets(net: str, examples: tf.data.Dataset) -> tf.data.Dataset:
    """Repeats the labels of (images, labels) for each output of a network."""
    num_outputs = len(models.output_loss_weights(net))
    if num_outputs == 1:
        return examples
    return examples.map(lambda images, labels: (images, (labels,) * num_outputs))


def cross_entropy(net: str, logs: dict[str, float]) -> float:
    """Returns the weighted sum of the outputs' cross-entropies: the loss without regularization."""
    weights = models.output_loss_weights(net)
    if len(weights) == 1:
        return logs[_ENTROPY]
    return sum(weight * logs[f"{name}_{_ENTROPY}"] for name, weight in weights.items())


def precision_at_1(net: str, logs: dict[str, float]) -> float:
    """Returns the fraction of examples whose class has the largest logit of the first output."""
    first, *others = models.output_loss_weights(net)
    return logs[f"{first}_{_ACCURACY}" if others else _ACCURACY]


def _cross_entropy_of_output(label_smoothing):
    if label_smoothing == 0:

        def from_labels(labels, logits):
            return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

        return from_labels

    def from_smoothed(labels, logits):
        onehot = keras.ops.one_hot(keras.ops.reshape(labels, [-1]), logits.shape[-1])
        return keras.losses.categorical_crossentropy(
            onehot, logits, from_logits=True, label_smoothing=label_smoothing
        )

    return from_smoothed
