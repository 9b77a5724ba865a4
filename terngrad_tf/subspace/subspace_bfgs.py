"""P-BFGS: quasi-Newton steps with a line search inside a subspace."""

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.subspace import bfgs, line_search, replicas
from terngrad_tf.subspace.basis import on_device, project
from terngrad_tf.subspace.optimizer import SubspaceOptimizer, without_fill

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
        m = gamma m + (g - P^T c)                    (only where alpha > 0)
        w = w + P^T s - alpha m

    All trials see the same batch, batch-norm statistics and dropout masks as the gradient did, and
    leave no trace. Replicas exchange k + 1 numbers a step and one more a trial; with `alpha` > 0
    also the gradient, as the strategy sends gradients (ternary under `TernGradStrategy`).

    Works with `SubspaceModel`, which lets the optimizer evaluate the loss. Losses by regularizers
    count; the optimizer itself decays no weights. Batches should be large: curvature between small
    ones is mostly noise.

    Example:
        >>> model = SubspaceModel(network.inputs, network.outputs)
        >>> model.compile(SubspaceBFGS(subspace), loss="mse")

    Args:
        subspace: `Subspace`, or path of its file.
        rho: factor between trial steps, in (0, 1). Default 0.55.
        sigma: part of the linear decrease that a step must reach, in (0, 1). Default 0.4.
        max_trials: steps tried at most, a positive integer. Default 10.
        on_failure: what happens when no trial is accepted. "reset": no step in the subspace, and
            the curvature is forgotten. "reference": the step of the last trial is taken and the
            curvature kept, as MindSpore Boost's first release did; it diverges easily. Default
            "reset".
        alpha: step length outside of the subspace, 0 or more. Default 0.
        gamma: momentum outside of the subspace, in [0, 1). Default 0.9.
        dtype: dtype in which devices keep the basis. Default: as the subspace.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is out of range, or the subspace does not fit the weights.

    Source: Li et al., "Low Dimensional Trajectory Hypothesis is True: DNNs Can Be Trained in Tiny
    Subspaces", TPAMI 2022.
    """

    def __init__(
        self,
        subspace,
        *,
        rho=0.55,
        sigma=0.4,
        max_trials=10,
        on_failure="reset",
        alpha=0.0,
        gamma=0.9,
        dtype=None,
        name="subspace_bfgs",
    ):
        super().__init__(subspace, dtype=dtype, name=name)
        _check(0 < rho < 1, "rho", "must be in the range (0, 1)", rho)
        _check(0 < sigma < 1, "sigma", "must be in the range (0, 1)", sigma)
        integer = isinstance(max_trials, int) and not isinstance(max_trials, bool)
        _check(integer and max_trials > 0, "max_trials", "must be a positive integer", max_trials)
        _check(on_failure in ON_FAILURE, "on_failure", f"must be one of {ON_FAILURE}", on_failure)
        _check(0 <= alpha < float("inf"), "alpha", "must be a number, 0 or more", alpha)
        _check(0 <= gamma < 1, "gamma", "must be in the range [0, 1)", gamma)
        self.rho = rho
        self.sigma = sigma
        self.max_trials = max_trials
        self.on_failure = on_failure
        self.alpha = alpha
        self.gamma = gamma

    def build(self, variables):
        """Creates the state: B, the last coordinates and step, counters, and m where it is used."""
        if self.built:
            return
        super().build(variables)
        k = self.num_components
        self._inverse_hessian = self.add_state((k, k), "inverse_hessian", initializer="identity")
        self._last_gradient = self.add_state((k,), "last_gradient")
        self._last_step = self.add_state((k,), "last_step")
        self._num_trials = self.add_state((), "num_trials", "int64")
        self._num_failures = self.add_state((), "num_failures", "int64")
        self._momentum = self.add_optimizer_variables(variables, "momentum") if self.alpha else []

    @property
    def num_trials(self):
        """Trial steps evaluated since the start, an int64 variable."""
        return self._num_trials

    @property
    def num_failures(self):
        """Steps whose search accepted no trial, an int64 variable."""
        return self._num_failures

    def apply(self, grads, trainable_variables=None):
        """Not possible: gradients alone do not tell the loss at other weights.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "`SubspaceBFGS` needs the loss at trial weights: train a SubspaceModel, or call `step`."
            " Received: gradients alone"
        )

    def step(self, loss, gradients, loss_at, data):
        """Takes one step; called by every replica, in replica context.

        Args:
            loss: this replica's part of the global loss, scalar tensor: the parts' sum over all
                replicas counts.
            gradients: list of gradients of `loss`, one a weight that the optimizer was built with.
            loss_at: function of a list of weights, as tensors, and of `data` to the same part of
                the loss at those weights. It may change no variable and use no other tensors: it
                is called for other replicas too.
            data: structure of tensors, this replica's batch.
        """
        summed = None
        if self.alpha:
            given = [
                tf.zeros(v.shape, v.dtype) if g is None else g
                for g, v in zip(gradients, self._weights, strict=True)
            ]
            summed = private.sum_gradients(self, given, self._weights)
        gradients, loss = without_fill(gradients, loss)

        def trial(values, data, empty):
            loss = tf.cast(loss_at(values, data), tf.float32)
            return loss if empty is None else tf.where(empty, 0.0, loss)

        def together(strategy, gradients, loss, summed, data, empty):
            def loss_with(values):
                parts = strategy.extended.call_for_each_replica(trial, args=(values, data, empty))
                total = tf.add_n(replicas.local(strategy, parts))
                return replicas.sum_over_hosts(strategy, total)

            self._step_together(strategy, gradients, loss, summed, loss_with)

        tf.distribute.get_replica_context().merge_call(
            together, args=(gradients, loss, summed, data, private.replica_is_empty())
        )

    def get_config(self):
        """Arguments that make an equal optimizer."""
        return {
            **super().get_config(),
            "rho": self.rho,
            "sigma": self.sigma,
            "max_trials": self.max_trials,
            "on_failure": self.on_failure,
            "alpha": self.alpha,
            "gamma": self.gamma,
        }

    def _step_together(self, strategy, gradients, loss, summed, loss_with):
        gradient, loss = self.exchange(strategy, gradients, loss)
        inverse_hessian, direction, slope = self._direction(gradient)
        rows = [direction]
        if self.alpha:
            device = replicas.devices_of(strategy)[0]
            first = [replicas.local(strategy, g)[0] for g in summed]
            rows.append(project(self._basis.on(device), first))
        directions = self.directions(strategy, tf.stack(rows))

        def loss_at(factor):
            return loss_with(self._weights_at(strategy, directions, factor))

        factor, accepted, tried = line_search.backtrack(
            loss_at, loss, slope, rho=self.rho, sigma=self.sigma, max_trials=self.max_trials
        )
        self._remember(gradient, inverse_hessian, direction, factor, accepted, tried)
        self._move(strategy, summed, directions, factor, accepted)
        self.count_step(tried)

    def _weights_at(self, strategy, directions, factor):
        """Weights `w + factor * P^T d`, each as one value with a component a replica."""
        trial = []
        for position, variable in enumerate(self._weights):
            moved = {}
            for device, copies in replicas.by_device(strategy, variable.value).items():
                with tf.device(device):
                    step = factor * directions[device][0][position]
                    moved[device] = copies[0] + tf.cast(step, copies[0].dtype)
            trial.append(replicas.spread(strategy, moved))
        return trial

    def _direction(self, gradient):
        last_step = tf.convert_to_tensor(self._last_step)
        change = gradient - tf.convert_to_tensor(self._last_gradient)
        inverse_hessian = bfgs.update_inverse_hessian(
            tf.convert_to_tensor(self._inverse_hessian), last_step, change
        )
        direction, slope, inverse_hessian = bfgs.descent_direction(inverse_hessian, gradient)
        return inverse_hessian, direction, slope

    def _remember(self, gradient, inverse_hessian, direction, factor, accepted, tried):
        step = factor * direction
        if self.on_failure == "reset":
            step = tf.where(accepted, step, tf.zeros_like(step))
            identity = tf.eye(self.num_components)
            inverse_hessian = tf.where(accepted, inverse_hessian, identity)
        else:
            step = tf.where(accepted, step, tf.convert_to_tensor(self._last_step))
        self._inverse_hessian.assign(inverse_hessian)
        self._last_gradient.assign(gradient)
        self._last_step.assign(step)
        self._num_trials.assign_add(tf.cast(tried, tf.int64))
        self._num_failures.assign_add(tf.cast(tf.logical_not(accepted), tf.int64))

    def _move(self, strategy, summed, directions, factor, accepted):
        taken = tf.logical_or(accepted, self.on_failure == "reference")

        def step_of(copy, position):
            direction = on_device(directions, copy.device)[0][position]
            # Not a product with zero: the direction of a search that failed may be NaN.
            return tf.where(taken, factor * direction, tf.zeros_like(direction))

        def move_inside(copy, position):
            copy.assign_add(tf.cast(step_of(copy, position), copy.dtype))

        def move_anywhere(copy, position, momentum):
            gradient = on_device(gradients[position], copy.device)[0]
            inside = on_device(directions, copy.device)[1][position]
            outside = tf.cast(gradient, tf.float32) - inside
            new = self.gamma * tf.cast(momentum, tf.float32) + outside
            momentum.assign(tf.cast(new, momentum.dtype))
            copy.assign_add(tf.cast(step_of(copy, position) - self.alpha * new, copy.dtype))

        if self.alpha:
            gradients = [replicas.by_device(strategy, g) for g in summed]
            self.update_weights(strategy, move_anywhere, self._momentum)
        else:
            self.update_weights(strategy, move_inside)


def _check(condition, name, rule, value):
    if not condition:
        raise ValueError(f"`{name}` {rule}. Received: {name}={value!r}")
