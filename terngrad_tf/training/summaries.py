"""Histograms of weights, activations and ternary gradients for TensorBoard."""

import keras
import tensorflow as tf

from terngrad_tf.training.callbacks import StepCounter


class Histograms(StepCounter):
    """Writes what each variable and each ternary gradient looks like, now and then.

    A histogram of each trainable variable, under its path; and, where the strategy recorded them in
    the last step, of each variable with a ternary gradient the fraction of zeros, as
    `<path>/ternary/sparsity`, and a histogram of the values -scale, 0 and scale, as
    `<path>/ternary/gradients`, both of the first replica.

    Args:
        first_step: steps done before `fit`.
        variables_due: rule of `triggers` for variables, of the number of steps done.
        gradients_due: rule for gradients, of the number of steps done before the last one.
        writer: `tf.summary` writer.
        statistics: callable that gives the strategy's `gradient_statistics`.
    """

    def __init__(self, first_step, variables_due, gradients_due, writer, statistics):
        super().__init__(first_step)
        self._variables_due = variables_due
        self._gradients_due = gradients_due
        self._writer = writer
        self._statistics = statistics

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Writes what is due."""
        with self._writer.as_default():
            if self._variables_due(self.step):
                for variable in self.model.trainable_variables:
                    tf.summary.histogram(variable.path, variable.value, step=self.step)
            # The optimizer counts a step as done after it has exchanged the step's gradients.
            if self._gradients_due(self.step - 1):
                for path, recorded in self._statistics().items():
                    # Not so in a step with float gradients, which leaves the last record.
                    if recorded.step == self.step - 1:
                        _write(path, recorded, self.step)


def _write(path, recorded, step):
    counts = recorded.negative, recorded.zero, recorded.positive
    tf.summary.scalar(f"{path}/ternary/sparsity", recorded.zero / sum(counts), step=step)
    # `tf.summary.histogram` would ask for all the elements instead of their counts.
    scale = recorded.scale
    values = [-scale, 0.0, scale]
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="histograms")
    )
    rows = [[value, value, count] for value, count in zip(values, counts, strict=True)]
    tf.summary.write(
        f"{path}/ternary/gradients", tf.constant(rows, tf.float64), step=step, metadata=metadata
    )


def write_network(model, images, writer, step):
    """Writes what a network's weights and its activations on some images look like.

    A histogram of each trainable variable, under its path; and of what each dense layer and each
    layer with an activation function gives, a histogram as `<layer>/activations` and the
    fraction of zeros as `<layer>/sparsity`.

    Args:
        model: `keras.Model`, of its layers.
        images: tensor [batch, height, width, channels].
        writer: `tf.summary` writer.
        step: steps done.
    """
    layers = [layer for layer in model.layers if _is_activation(layer)]
    outputs = keras.Model(model.input, [layer.output for layer in layers])(images, training=False)
    with writer.as_default():
        for variable in model.trainable_variables:
            tf.summary.histogram(variable.path, variable.value, step=step)
        for layer, values in zip(layers, tf.nest.flatten(outputs), strict=True):
            tf.summary.histogram(f"{layer.name}/activations", values, step=step)
            sparsity = tf.math.zero_fraction(values)
            tf.summary.scalar(f"{layer.name}/sparsity", sparsity, step=step)


def _is_activation(layer):
    if isinstance(layer, keras.layers.ReLU):
        return True
    function = getattr(layer, "activation", None)
    return isinstance(layer, keras.layers.Dense) or function not in (
        None,
        keras.activations.linear,
    )
