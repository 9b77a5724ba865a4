"""What the optimizers of a subspace share: the basis, its fingerprint, exchange and steps."""

import os

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.subspace.basis import DeviceBasis, back_project, device_key, project
from terngrad_tf.subspace.subspace import DTYPES, Subspace


class Replica:
    """What one replica brings to a step, for use in cross-replica context.

    Args:
        gradients: list of gradients in the order of the weights, None for unused ones.
        loss: scalar tensor, this replica's part of the global loss. Default 0.
        loss_at: function of a list of weights, as tensors, to that loss there, without any effect
            on variables. Default: none.
        summed: list of gradients summed over all replicas. Default: none.
    """

    def __init__(self, gradients, loss=0.0, loss_at=None, summed=None):
        empty = private.replica_is_empty()
        self.gradients = [
            g if g is None or empty is None else tf.where(empty, tf.zeros_like(g), g)
            for g in (g if g is None else tf.convert_to_tensor(g) for g in gradients)
        ]
        self._empty = empty
        self.loss = self._own(tf.cast(loss, tf.float32))
        self.loss_at = loss_at and (lambda values: self._own(tf.cast(loss_at(values), tf.float32)))
        self.summed = summed
        # Strategies nest the one device of a replica in lists.
        self.device = tf.nest.flatten(tf.distribute.get_replica_context().devices)[0]
        self.sent = None

    def _own(self, loss):
        # A replica without examples computes on filled-up data, which counts nothing.
        return loss if self._empty is None else tf.where(self._empty, 0.0, loss)


class SubspaceOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers that move all weights at once, along directions of a `Subspace`.

    Replicas exchange the coordinates of their gradients, `P g`, which are k numbers, whatever the
    size of the network: projection is linear, so the sum of the projections is the projection of
    the sum. The basis stays out of saved models and checkpoints; they hold its fingerprint and
    refuse another basis.

    Args:
        subspace: `Subspace`, or path of its file. A `.keras` file of the model stores the path, so
            saving needs a subspace that was saved.
        dtype: "float32", "float16" or "bfloat16", in which devices keep the basis. Default: as the
            subspace.
        name: name of the optimizer.
        learning_rate: as of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: the subspace does not fit the weights, or an argument is out of range.
    """

    def __init__(self, subspace, *, dtype, name, learning_rate=1.0):
        super().__init__(learning_rate=learning_rate, name=name)
        if isinstance(subspace, str | os.PathLike):
            subspace = Subspace.load(subspace)
        if not isinstance(subspace, Subspace):
            raise ValueError(
                f"`subspace` must be a Subspace or the path of its file. Received: {subspace!r}"
            )
        if dtype is not None and dtype not in DTYPES:
            raise ValueError(
                f"`dtype` must be one of {', '.join(DTYPES)}. Received: dtype={dtype!r}"
            )
        self.num_components = subspace.num_components
        self._dtype = subspace.components.dtype.name if dtype is None else dtype
        self._source = subspace
        self._expected_fingerprint = subspace.fingerprint

    def build(self, variables):
        """Checks that the subspace fits, and copies the basis to the devices.

        Raises:
            ValueError: the weights are not those of the subspace, or one has a constraint.
        """
        if self.built:
            return
        self._source.check_fits(variables)
        for variable in variables:
            if variable.constraint is not None:
                raise ValueError(
                    "weights must have no constraint, which would lead out of the subspace. "
                    f"Received: {variable.path} with {variable.constraint}"
                )
        super().build(variables)
        self._weights = list(variables)
        self._basis = DeviceBasis(
            self._source.components, variables, tf.distribute.get_strategy(), self._dtype
        )
        self._fingerprint = self.add_variable(
            shape=(),
            initializer=lambda shape, dtype: tf.constant(self._expected_fingerprint, dtype),
            dtype="int64",
            aggregation="only_first_replica",
            name="basis_fingerprint",
        )

    def add_state(self, shape, name, dtype="float32", initializer="zeros"):
        """A variable that all replicas share."""
        return self.add_variable(
            shape, initializer, dtype, aggregation="only_first_replica", name=name
        )

    def load_own_variables(self, store):
        """Restores the state from a `.keras` or `.weights.h5` file.

        Raises:
            ValueError: the file was written with another basis.
        """
        super().load_own_variables(store)
        saved = int(self._fingerprint.numpy())
        if saved != self._expected_fingerprint:
            raise ValueError(
                f"`subspace` must be the one that the model was saved with, fingerprint {saved}. "
                f"Received: fingerprint={self._expected_fingerprint}"
            )

    def get_config(self):
        """Arguments that make an equal optimizer.

        Raises:
            ValueError: the subspace has no file yet.
        """
        if self._source.path is None:
            raise ValueError(
                "`subspace` must have a file for the model to refer to: call `subspace.save` first."
                " Received: a subspace without a path"
            )
        return {"name": self.name, "subspace": self._source.path, "dtype": self._dtype}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Makes the optimizer of a configuration."""
        return cls(**config)

    # What follows runs in cross-replica context.

    def exchange(self, strategy, replicas, local):
        """Sums coordinates and losses over all replicas.

        Args:
            strategy: `tf.distribute.Strategy`.
            replicas: per-replica value of `Replica`.
            local: list of this process's `Replica`.

        Returns:
            Tuple of the coordinates of the gradient [k] and the loss, float32.
        """
        for members in _by_device(local):
            with tf.device(members[0].device):
                gradients = [
                    _total(parts) for parts in zip(*(m.gradients for m in members), strict=True)
                ]
                coordinates = project(self._basis.on(members[0].device), gradients)
                loss = tf.add_n([m.loss for m in members])
                members[0].sent = tf.concat([coordinates, [loss]], 0)
            for member in members[1:]:
                with tf.device(member.device):
                    member.sent = tf.zeros_like(members[0].sent)
        received = reduce_sum(strategy, lambda replica: replica.sent, replicas)
        matches = tf.debugging.assert_equal(
            tf.convert_to_tensor(self._fingerprint),
            tf.constant(self._expected_fingerprint, tf.int64),
            "The optimizer's state belongs to another basis (fingerprint of the subspace)",
        )
        with tf.control_dependencies([] if matches is None else [matches]):
            return received[:-1], tf.identity(received[-1])

    def directions(self, local, coordinates):
        """`P^T c` for each row of the coordinates [rows, k], on every device of this process.

        Returns:
            Dict of device keys to a list, one a row, of lists of tensors in the weights' shapes.
        """
        shapes = [tuple(v.shape) for v in self._weights]
        found = {}
        for members in _by_device(local):
            with tf.device(members[0].device):
                found[device_key(members[0].device)] = back_project(
                    self._basis.on(members[0].device), coordinates, shapes
                )
        return found

    def update_weights(self, strategy, update, slots=None):
        """Updates every copy of every weight.

        Args:
            strategy: `tf.distribute.Strategy`.
            update: function of a copy of a weight, the weight's position, and the slot's copy where
                there are slots.
            slots: list of optimizer variables, one a weight. Default: none.
        """
        for position, variable in enumerate(self._weights):
            strategy.extended.update(
                variable.value,
                lambda copy, *slot, p=position: update(copy, p, *slot),
                args=() if slots is None else (slots[position].value,),
                group=False,
            )

    def count_step(self, after):
        """Adds one to `iterations`, once the tensor `after` is there.

        Where a data set ends within a step, nothing may count it.
        """
        with tf.control_dependencies([after]):
            self.iterations.assign_add(1)


def reduce_sum(strategy, function, replicas, *args):
    """Sum over all replicas of `function(replica, *args)`; in cross-replica context."""
    values = strategy.extended.call_for_each_replica(function, args=(replicas, *args))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)


def on_device(values, device):
    """The entry of a dict by device keys for a device string; the first where there is none."""
    return values.get(device_key(device), next(iter(values.values())))


def _by_device(local):
    groups = {}
    for replica in local:
        groups.setdefault(device_key(replica.device), []).append(replica)
    return list(groups.values())


def _total(parts):
    given = [part for part in parts if part is not None]
    return tf.add_n(given) if given else None
