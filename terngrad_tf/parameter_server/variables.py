"""A model's variables on parameter servers: workers pull them and push gradients."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.batch_norms import batch_norms
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import PushTraffic
from terngrad_tf.parameter_server.codec import PushCodec


def place(sizes: Sequence[int], num_servers: int) -> list[list[int]]:
    """Divides variables among servers; each goes to the server with the fewest elements so far.

    Returns the positions of each server's variables, without servers that get none.

    Example:
    >>> place([10, 3, 4, 5], 2)
    [[0], [1, 2, 3]]
    """
    positions, totals = [[] for _ in range(num_servers)], [0] * num_servers
    for position, size in enumerate(sizes):
        server = totals.index(min(totals))
        positions[server].append(position)
        totals[server] += size
    return [found for found in positions if found]


class ServedModel:
    """Keeps the trained variables of a model, and its optimizer's, on parameter servers.

    The given model and optimizer are templates on the chief. They take part in checkpoints, and
    hold current values after `download`.

    A server applies one push at a time: it decodes the gradients, takes one optimizer step, and
    moves the batch-norm statistics s towards the batch's, b:
    `s = momentum * s + (1 - momentum) * b`. A pull may overlap a push.

    Args:
        model, optimizer: built; weights are float32.
        averages: moving averages of `statistics` by the optimizer's `ema_momentum`.

    Raises:
        ValueError: a weight is not float32, or changes in training outside of batch norm.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        quantization: Quantization,
        server_devices: Sequence[str],
        num_workers: int,
        wire: str = "auto",
        averages: Sequence[keras.Variable] = (),
    ) -> None:
        self._template = [*model.weights, *optimizer.variables, *averages]
        for weight in model.weights:
            if weight.dtype != "float32":
                raise ValueError(
                    "`model` must have float32 weights for asynchronous training. "
                    f"Received: {weight.path} of type {weight.dtype}"
                )
        trained = model.trainable_variables
        specs = [tf.TensorSpec(v.shape, tf.float32) for v in trained]
        paths = [v.path for v in trained]
        quantization.check_logits(paths)
        rounded = quantization.ternary_positions(specs, paths)
        positions = place([v.shape.num_elements() for v in trained], len(server_devices))
        momenta = _statistics(model)
        self.statistics = [variable for variable, _ in momenta]
        self._num_trained = len(trained)

        def codec(found, rounded):
            shapes = [trained[i].shape for i in found]
            ternary_places = [place for place, i in enumerate(found) if i in rounded]
            return PushCodec(shapes, ternary_places, found, quantization, num_workers, wire)

        self._servers = []
        for device, found in zip(server_devices, positions, strict=False):
            codecs = {False: codec(found, set(rounded)), True: codec(found, ())}
            # The first server has all batch-norm statistics, which are small.
            own = ([], []) if self._servers else (momenta, averages)
            self._servers.append(_Server(device, found, trained, *own, optimizer, codecs))

    @property
    def traffic(self) -> Any:
        """`PushTraffic` of a step by the options; with streams, about the maximum."""
        return sum((server.traffic for server in self._servers), start=PushTraffic(0, 0, 0))

    def pull(self) -> Any:
        """Reads the trained variables, in a function that a worker runs.

        Returns the values, in the model's order, and the number of pushes applied so far, an int64
        scalar.
        """
        values = [None] * self._num_trained
        for server in self._servers:
            for position, value in zip(server.positions, server.read(), strict=True):
                values[position] = value
        return values, self._servers[0].read_step()

    def push(
        self, gradients: Sequence[Any], moments: Any, step: Any, worker: Any, *, exact: bool = False
    ) -> Any:
        """Sends gradients, as float32 if `exact`, to the servers, which apply them.

        Args:
            moments: statistics of the batch, one for each of `statistics`.
            step: number of pushes that `pull` returned.

        Returns:
            Pair of int64 scalars: pushes applied, including this one, and payload bytes sent to all
            servers.
        """
        steps, num_bytes = zip(
            *(
                server.push([gradients[i] for i in server.positions], moments, step, worker, exact)
                for server in self._servers
            ),
            strict=True,
        )
        return steps[0], tf.add_n(num_bytes)

    def upload(self) -> None:
        """Sets the servers' variables to the values of the model and the optimizer."""
        for served, own in self._pairs():
            served.assign(own.numpy())

    def download(self) -> None:
        """Sets the model and the optimizer to the values of the servers' variables."""
        for served, own in self._pairs():
            own.assign(served.numpy())

    def _pairs(self):
        """Pairs of a variable on a server and the template with the same path."""
        own = {_name(variable): variable for variable in self._template}
        return [
            (variable, own[_name(variable)])
            for server in self._servers
            for variable in server.variables
        ]


class _Server:
    """The variables on one server and the optimizer that updates them."""

    def __init__(self, device, positions, trained, momenta, averages, optimizer, codecs):
        self._device = f"{device}/device:CPU:0"
        self.positions = positions
        # Key True: all gradients travel as float32.
        self._codecs = codecs
        self._momenta = [momentum for _, momentum in momenta]
        with tf.device(self._device):
            self._trained = [_copy(trained[i]) for i in positions]
            self._statistics = [_copy(variable) for variable, _ in momenta]
            self._averages = [_copy(variable) for variable in averages]
            self._optimizer = type(optimizer).from_config(optimizer.get_config())
            self._optimizer.build(self._trained)
            self._one_at_a_time = tf.CriticalSection()
        # Traced here: a scheduled function would run the optimizer in a thread, which would
        # wait for the section's lock on the graph.
        self._apply = tf.function(self._update, autograph=False).get_concrete_function(
            [tf.TensorSpec(v.shape, tf.float32) for v in self._trained],
            [tf.TensorSpec(v.shape, tf.float32) for v in self._statistics],
        )

    @property
    def variables(self):
        return [
            *self._trained,
            *self._statistics,
            *self._averages,
            *self._optimizer.variables,
        ]

    @property
    def _moment_bytes(self):
        return 4 * sum(v.shape.num_elements() for v in self._statistics)

    @property
    def traffic(self):
        moments = self._moment_bytes
        floats = 4 * sum(v.shape.num_elements() for v in self._trained)
        return PushTraffic(self._codecs[False].num_bytes + moments, floats, floats + moments)

    def _update(self, gradients, moments):
        with tf.device(self._device):
            for s, momentum, moment in zip(self._statistics, self._momenta, moments, strict=True):
                s.assign(momentum * s.value + (1.0 - momentum) * moment)
            # As in Keras, the first value is the first average.
            is_later = tf.cast(tf.not_equal(self._optimizer.iterations.value, 0), tf.float32)
            # One average for each statistic, or none.
            for average, s in zip(self._averages, self._statistics, strict=False):
                kept = is_later * self._optimizer.ema_momentum
                average.assign(kept * average.value + (1.0 - kept) * s.value)
            self._optimizer.apply(gradients, self._trained)
            return tf.identity(self._optimizer.iterations.value)

    def read(self):
        with tf.device(self._device):
            return [tf.identity(variable.value) for variable in self._trained]

    def read_step(self):
        with tf.device(self._device):
            # `tf.cast` alone would read the variable later.
            return tf.cast(tf.identity(self._optimizer.iterations.value), tf.int64)

    def push(self, gradients, moments, step, worker, exact):
        codec = self._codecs[exact]
        packed = codec.encode(gradients, step, worker)
        num_bytes = codec.num_bytes_of(packed) + self._moment_bytes
        moments = moments if self._statistics else []
        with tf.device(self._device):
            # Copied on the server: packed values travel.
            packed, moments = tf.nest.map_structure(tf.identity, (packed, moments))
            decoded = codec.decode(packed)
            # Or a worker would hold the lock while it computes.
            with tf.control_dependencies([*decoded, *moments]):
                after = self._one_at_a_time.execute(lambda: self._apply(decoded, moments))
            return tf.cast(after, tf.int64), num_bytes


def _statistics(model):
    """Pairs of a variable that batch norm updates and its momentum."""
    pairs = [
        (variable, layer.momentum)
        for layer in batch_norms(model)
        for variable in (layer.moving_mean, layer.moving_variance)
    ]
    known = {id(variable) for variable, _ in pairs}
    for weight in model.non_trainable_weights:
        if id(weight) not in known:
            raise ValueError(
                "`model` must have no untrained weights except batch-norm statistics. "
                f"Received: {weight.path}"
            )
    return pairs


def _name(variable):
    """Path of a variable, the same on chief and server."""
    return variable.path.replace("/", "_")


def _copy(variable):
    return keras.Variable(
        variable.numpy(), dtype=variable.dtype, trainable=variable.trainable, name=_name(variable)
    )
