"""P-BFGS: quasi-Newton steps with a line search inside a subspace."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common.arguments import check, check_integer
from terngrad_tf.common.files import PathLike
from terngrad_tf.distribute import private
from terngrad_tf.subspace.components.subspace import Subspace
from terngrad_tf.subspace.optimizers import bfgs, line_search, replicas
from terngrad_tf.subspace.optimizers.basis import on_device
from terngrad_tf.subspace.optimizers.optimizer import SubspaceOptimizer, mask_padding
from terngrad_tf.subspace.optimizers.residual import Residual

ON_FAILURE = ("reset", "reference")


@keras.saving.register_keras_serializable(package="terngrad_tf")
class SubspaceBFGS(SubspaceOptimizer):
    """Trains inside a `Subspace` with BFGS directions and Armijo's step lengths (P-BFGS).

    With P [k, n] the basis, g the mean gradient of the batch and L its loss:

        c = P g
        B = BFGS update of B with the last step s and y = c - c_last
        d = -B c
        f = first of 1, rho, rho^2, ... with L(w + f P^T d) < L(w) + sigma f c^T d
        s = f d
        w = w + P^T s
        m = gamma m + (g - P^T c)                    (only if alpha > 0,
        w = w - alpha m                               every residual_every steps)

    Trials use the gradient's batch, batch-norm statistics and dropout masks, without side effects.

    Each of M processes receives per step k + 1 numbers and one more per trial, each `2 (M - 1) / M`
    times 4 bytes; with `shard_basis`, also one per weight. Steps outside of the subspace add the
    gradient as the strategy sends gradients, and with `shard_basis` half a number per weight.

    Use it with `SubspaceModel`, which lets the optimizer evaluate the loss. Regularization losses
    count; the optimizer itself decays no weights. Use large batches: the curvature between small
    batches is mostly noise.

    Example:
        >>> model = SubspaceModel(network.inputs, network.outputs)
        >>> model.compile(SubspaceBFGS(subspace), loss="mse")

    Args:
        subspace: `Subspace`, or path of its file.
        rho: factor between trial steps, in (0, 1). Default 0.55.
        sigma: fraction of the linear decrease that a step must reach, in (0, 1). Default 0.4.
        max_trials: maximum number of steps to try. Default 10.
        on_failure: action if no trial is accepted. "reset": take no step in the subspace, and
            discard the curvature. "reference": take the last trial's step and keep the curvature,
            as MindSpore Boost's first release; easily diverges. Default "reset".
        alpha: step length outside of the subspace, 0 or more. Default 0, as in the paper's code:
            workers then exchange no gradient. MindSpore Boost uses 0.001.
        gamma: momentum outside of the subspace, in [0, 1). Default 0.9.
        residual_every: number of steps per step outside of the subspace. Default 1.
        dtype: dtype of the basis on the devices. Half precision saves memory, but no time on a CPU.
            Default: the subspace's.
        shard_basis: whether each process holds only a part 1 / processes of the basis, on its first
            device. Default False.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is out of range, or the subspace does not fit the weights.

    Source: Li et al., "Low Dimensional Trajectory Hypothesis is True: DNNs Can Be Trained in Tiny
    Subspaces", TPAMI 2022.
    """

    def __init__(
        self,
        subspace: Subspace | PathLike,
        *,
        rho: float = 0.55,
        sigma: float = 0.4,
        max_trials: int = 10,
        on_failure: str = "reset",
        alpha: float = 0.0,
        gamma: float = 0.9,
        residual_every: int = 1,
        dtype: str | None = None,
        shard_basis: bool = False,
        name: str = "subspace_bfgs",
    ) -> None:
        super().__init__(subspace, dtype=dtype, shard_basis=shard_basis, name=name)
        for argument, value, rule, keeps in (
            ("rho", rho, "in the range (0, 1)", 0 < rho < 1),
            ("sigma", sigma, "in the range (0, 1)", 0 < sigma < 1),
            ("on_failure", on_failure, f"one of {ON_FAILURE}", on_failure in ON_FAILURE),
            ("alpha", alpha, "a number, 0 or more", 0 <= alpha < float("inf")),
            ("gamma", gamma, "in the range [0, 1)", 0 <= gamma < 1),
        ):
            check(keeps, argument, f"must be {rule}", value)
        check_integer("max_trials", max_trials)
        check_integer("residual_every", residual_every)
        self.rho = rho
        self.sigma = sigma
        self.max_trials = max_trials
        self.on_failure = on_failure
        self.alpha = alpha
        self.gamma = gamma
        self.residual_every = residual_every

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the state: B, the last coordinates and step, counters, and m if needed."""
        if self.built:
            return
        super().build(variables)
        k = self.num_components
        self._inverse_hessian = self.add_state((k, k), "inverse_hessian", initializer="identity")
        self._last_gradient = self.add_state((k,), "last_gradient")
        self._last_step = self.add_state((k,), "last_step")
        self._num_trials = self.add_state((), "num_trials", "int64")
        self._num_failures = self.add_state((), "num_failures", "int64")
        self._residual = None
        if self.alpha:
            self._residual = Residual(
                self,
                self._basis,
                self._weights,
                self.add_optimizer_variables(variables, "momentum"),
                learning_rate=self.alpha,
                momentum=self.gamma,
                every=self.residual_every,
            )

    @property
    def learning_rate(self) -> keras.Variable:
        """Always 1: the search finds each step's length. Callbacks may not set another rate."""
        return super().learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        rule = "must be 1 for `SubspaceBFGS`, whose search finds the length of each step"
        check(learning_rate == 1, "learning_rate", rule, learning_rate)

    @property
    def num_trials(self) -> keras.Variable:
        """Number of trial steps since the start, an int64 variable."""
        return self._num_trials

    @property
    def num_failures(self) -> keras.Variable:
        """Number of steps without an accepted trial, an int64 variable."""
        return self._num_failures

    def steps_outside(self, step: int) -> bool:
        """See `SubspaceOptimizer.steps_outside`."""
        return self.alpha > 0 and step % self.residual_every == 0

    def apply(
        self,
        grads: Sequence[tf.Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Raises an error, since gradients do not determine the loss at other weights.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "`SubspaceBFGS` needs the loss at trial weights: train a SubspaceModel, or call `step`."
            " Received: gradients alone"
        )

    def step(
        self,
        loss: tf.Tensor,
        gradients: Sequence[Any],
        loss_at: Callable[[list[tf.Tensor], Any], tf.Tensor],
        data: Any,
    ) -> None:
        """Takes one step; called by every replica, in replica context.

        Args:
            loss: this replica's part of the global loss, a scalar; the parts are summed.
            gradients: list of gradients of `loss`, one per weight of `build`.
            loss_at: function of a list of weights, as tensors, and of `data`, that returns the same
                part of the loss there. It must not change variables or use other tensors: it is
                also called for other replicas.
            data: structure of tensors, this replica's batch.

        Raises:
            ValueError: the gradients are not those of the weights.
        """
        self.check_gradients("gradients", gradients)
        gradients, loss = mask_padding(gradients, loss)

        def trial(values, data, padding):
            with private.padded_replica(padding):
                _, part = mask_padding([], loss_at(values, data))
            return part

        def together(strategy, gradients, loss, data, padding):
            def loss_with(values):
                parts = strategy.extended.call_for_each_replica(trial, args=(values, data, padding))
                return replicas.all_reduce(strategy, replicas.sum_locally(strategy, parts))

            self._step_together(strategy, gradients, loss, loss_with)

        tf.distribute.get_replica_context().merge_call(
            together, args=(gradients, loss, data, private.current_padding())
        )

    def shared_config(self) -> dict[str, Any]:
        """Returns the arguments that all processes of a cluster share."""
        return {
            **super().shared_config(),
            "rho": self.rho,
            "sigma": self.sigma,
            "max_trials": self.max_trials,
            "on_failure": self.on_failure,
            "alpha": self.alpha,
            "gamma": self.gamma,
            "residual_every": self.residual_every,
        }

    def _step_together(self, strategy, gradients, loss, loss_with):
        gradient, loss = self.exchange(strategy, gradients, loss)
        inverse_hessian, direction, slope = self._direction(gradient)
        moves = self._basis.back_project(strategy, direction)

        def loss_at(factor):
            return loss_with(self._weights_at(strategy, moves, factor))

        search = line_search.backtrack(
            loss_at, loss, slope, rho=self.rho, sigma=self.sigma, max_trials=self.max_trials
        )
        self._remember(gradient, inverse_hessian, direction, search)
        self._move(strategy, moves, search)
        if self._residual is not None:
            self._residual.step(strategy, gradients)
        self.count_step(search.num_trials)

    def _weights_at(self, strategy, moves, factor):
        """Returns the weights `w + factor * P^T d` as per-replica values."""
        trial = []
        for position, variable in enumerate(self._weights):
            found = {}
            for device, copies in replicas.by_device(strategy, variable.value).items():
                with tf.device(device):
                    step = factor * moves[device][position]
                    found[device] = copies[0] + tf.cast(step, copies[0].dtype)
            trial.append(replicas.to_per_replica(strategy, found))
        return trial

    def _direction(self, gradient):
        last_step = tf.convert_to_tensor(self._last_step)
        change = gradient - tf.convert_to_tensor(self._last_gradient)
        inverse_hessian = bfgs.update_inverse_hessian(
            tf.convert_to_tensor(self._inverse_hessian), last_step, change
        )
        direction, slope, inverse_hessian = bfgs.descent_direction(inverse_hessian, gradient)
        return inverse_hessian, direction, slope

    def _remember(self, gradient, inverse_hessian, direction, search):
        step = search.factor * direction
        if self.on_failure == "reset":
            step = tf.where(search.accepted, step, tf.zeros_like(step))
            identity = tf.eye(self.num_components)
            inverse_hessian = tf.where(search.accepted, inverse_hessian, identity)
        else:
            step = tf.where(search.accepted, step, tf.convert_to_tensor(self._last_step))
        self._inverse_hessian.assign(inverse_hessian)
        self._last_gradient.assign(gradient)
        self._last_step.assign(step)
        self._num_trials.assign_add(tf.cast(search.num_trials, tf.int64))
        self._num_failures.assign_add(tf.cast(tf.logical_not(search.accepted), tf.int64))

    def _move(self, strategy, moves, search):
        is_taken = tf.logical_or(search.accepted, self.on_failure == "reference")
        factor = tf.where(is_taken, search.factor, 0.0)

        def move(copy, position):
            # The direction of a failed search may be NaN.
            step = tf.math.multiply_no_nan(on_device(moves, copy.device)[position], factor)
            copy.assign_add(tf.cast(step, copy.dtype))

        replicas.update(strategy, move, self._weights)
