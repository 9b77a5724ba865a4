"""Base of the optimizers in a subspace: the basis, its fingerprint, exchange and steps."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common.arguments import check, shown
from terngrad_tf.common.files import PathLike
from terngrad_tf.common.untracked import Untracked
from terngrad_tf.distribute import private
from terngrad_tf.distribute.exchange import traffic
from terngrad_tf.subspace.components.subspace import DTYPES, Subspace
from terngrad_tf.subspace.optimizers import replicas
from terngrad_tf.subspace.optimizers.basis import FLOAT_BYTES, ReplicatedBasis
from terngrad_tf.subspace.optimizers.sharded_basis import ShardedBasis


class SubspaceOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers that move all weights along the directions of a `Subspace`.

    Replicas exchange the coordinates of their gradients, `P g`: k numbers, since projection is
    linear. With `shard_basis`, each process keeps a piece of P and receives as many bytes per step
    as with float32 gradients; results are equal up to rounding. Checkpoints hold the basis's
    fingerprint and refuse another basis.

    Args:
        subspace: `Subspace`, or path of its file, which `.keras` files store.
        dtype: "float32", "float16" or "bfloat16", of the basis on the devices. Default: the
            subspace's.
        shard_basis: see `ShardedBasis`.

    Raises:
        ValueError: the subspace does not fit the weights, or an argument is out of range.
    """

    def __init__(
        self,
        subspace: Subspace | PathLike,
        *,
        dtype: str | None,
        shard_basis: bool,
        name: str,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1.0,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name)
        # Errors of steps are one line under any strategy.
        private.install_patches()
        if isinstance(subspace, str | os.PathLike):
            subspace = Subspace.load(subspace)
        if not isinstance(subspace, Subspace):
            raise ValueError(
                f"`subspace` must be a Subspace or the path of its file. Received: {subspace!r}"
            )
        one_of = f"must be one of {', '.join(DTYPES)}"
        check(dtype is None or dtype in DTYPES, "dtype", one_of, dtype)
        check(isinstance(shard_basis, bool), "shard_basis", "must be a bool", shard_basis)
        self.num_components = subspace.num_components
        self._dtype = subspace.components.dtype.name if dtype is None else dtype
        self._shard_basis = shard_basis
        self._source = subspace
        self._expected_fingerprint = subspace.fingerprint

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Checks that the subspace fits the weights, and copies the basis to the devices.

        Raises:
            ValueError: the weights do not match the subspace, or one has a constraint.
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
        # Keras would track a list as the optimizer's variables and save them again.
        self._untracked_weights = Untracked(list(variables))
        basis_class = ShardedBasis if self._shard_basis else ReplicatedBasis
        self._basis = basis_class(
            self._source.components, variables, tf.distribute.get_strategy(), self._dtype
        )
        self._fingerprint = self.add_variable(
            shape=(),
            # Keras accepts functions, too.
            initializer=lambda shape, dtype: tf.constant(  # pyright: ignore[reportArgumentType]
                self._expected_fingerprint, dtype
            ),
            dtype="int64",
            aggregation="only_first_replica",
            name="basis_fingerprint",
        )

    @property
    def _weights(self):
        return self._untracked_weights.value

    def check_weights(self, trainable_variables: Sequence[keras.Variable] | None) -> None:
        """Raises ValueError unless the variables are None or all weights of `build`."""
        if trainable_variables is None:
            return
        received = list(trainable_variables)
        same = len(received) == len(self._weights)
        if not same or any(a is not b for a, b in zip(received, self._weights, strict=True)):
            raise ValueError(
                f"the weights must be all {len(self._weights)} that the optimizer was built with, "
                "in their order; another model needs its own optimizer. "
                f"Received: {len(received)} weights"
            )

    def check_gradients(self, name: str, gradients: Sequence[Any]) -> None:
        """Raises ValueError unless an argument has a gradient or None for each weight, and one
        gradient or more.
        """
        shapes = [None if g is None else tf.TensorShape(g.shape) for g in gradients]
        expected = [tuple(weight.shape) for weight in self._weights]
        fit = len(shapes) == len(expected) and all(
            found is None or found.is_compatible_with(shape)
            for found, shape in zip(shapes, expected, strict=True)
        )
        received = [None if found is None else str(found) for found in shapes]
        check(fit, name, f"must have the weights' shapes {shown(expected)}, or be None", received)
        check(any(received), name, "must not all be None", received)

    def add_state(
        self, shape: Sequence[int], name: str, dtype: str = "float32", initializer: str = "zeros"
    ) -> keras.Variable:
        """Adds a variable that all replicas share."""
        return self.add_variable(
            shape, initializer, dtype, aggregation="only_first_replica", name=name
        )

    def load_own_variables(self, store: Any) -> None:
        """Restores the state from a `.keras` or `.weights.h5` file.

        Raises:
            ValueError: the file was written with another basis.
        """
        super().load_own_variables(store)
        # Keras passes over the state, with a warning, before the optimizer is built.
        if self.built:
            self.check_basis()

    def check_basis(self) -> None:
        """Raises ValueError if the restored state belongs to another basis."""
        with tf.init_scope():
            # Empty if the step being traced creates the variable: nothing was restored.
            saved = tf.reshape(tf.convert_to_tensor(self._fingerprint), [-1]).numpy().tolist()
        if saved not in ([], [self._expected_fingerprint]):
            raise ValueError(
                "`subspace` must be the one that the model was saved with, fingerprint"
                f" {saved[0]}. Received: fingerprint={self._expected_fingerprint}"
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal optimizer.

        Raises:
            ValueError: the subspace has no file yet.
        """
        if self._source.path is None:
            raise ValueError(
                "`subspace` must have a file for the model to refer to: call `subspace.save` first."
                " Received: a subspace without a path"
            )
        return {**self.shared_config(), "subspace": self._source.path}

    def shared_config(self) -> dict[str, Any]:
        """Returns the arguments that all processes of a cluster share, without the file."""
        return {"name": self.name, "dtype": self._dtype, "shard_basis": self._shard_basis}

    def steps_outside(self, step: int) -> bool:
        """Returns True if the step after `step` steps also moves weights outside the subspace."""
        del step
        return False

    def received_bytes(self, num_processes: int, step: int) -> float:
        """Returns the bytes that a process receives per step, without trials and outside gradients.

        Args:
            step: number of steps done before.
        """
        loss = traffic.ring_bytes(FLOAT_BYTES, num_processes)
        return loss + self._basis.received_bytes(num_processes, self.steps_outside(step))

    # Methods in cross-replica context.

    def exchange(
        self, strategy: tf.distribute.Strategy, gradients: Sequence[Any], losses: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums coordinates and losses over all replicas.

        Args:
            gradients: per-replica gradients, None for unused weights.
            losses: per-replica parts of the loss, float32 scalars.

        Returns:
            The gradient's coordinates [k] and the loss (0 without losses), float32.
        """
        loss = tf.zeros([]) if losses is None else replicas.sum_locally(strategy, losses)
        received = self._basis.project_sum(strategy, gradients, loss)
        # Checked while tracing, too: XLA drops the assertion.
        self.check_basis()
        fingerprint = tf.constant(self._expected_fingerprint, tf.int64)
        matches = private.assert_on_host(
            tf.reduce_all(tf.equal(tf.convert_to_tensor(self._fingerprint), fingerprint)),
            "The optimizer's state belongs to another basis (fingerprint of the subspace)",
        )
        with tf.control_dependencies([] if matches is None else [matches]):
            received = tf.identity(received)
        k = self.num_components
        return received[:k], received[k]

    def count_step(self, after: tf.Tensor) -> None:
        """Adds one to `iterations` after the tensor `after` is computed.

        Steps in which the data set ends must not count.
        """
        with tf.control_dependencies([after]):
            self.iterations.assign_add(1)  # pyright: ignore[reportAttributeAccessIssue]


def mask_padding(
    gradients: Sequence[Any], loss: tf.Tensor | None = None
) -> tuple[list[tf.Tensor | None], tf.Tensor | None]:
    """Zeroes gradients, made dense, and loss of padded (empty) batches; in replica context.

    Args:
        gradients: list of gradients, None for unused weights.
    """
    gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
    loss = None if loss is None else tf.cast(loss, tf.float32)
    empty = private.current_padding().is_empty
    if empty is None:
        return gradients, loss
    return private.mask_gradients(gradients), None if loss is None else tf.where(empty, 0.0, loss)
