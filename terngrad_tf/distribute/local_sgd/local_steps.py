"""Training in a replica's own steps, whose changes are exchanged now and then: `DiLoCo`."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from terngrad_tf.common.places import places
from terngrad_tf.common.untracked import Untracked
from terngrad_tf.distribute import private
from terngrad_tf.distribute.local_sgd import options
from terngrad_tf.distribute.local_sgd.error_feedback import ErrorFeedback, WholeChanges
from terngrad_tf.distribute.local_sgd.fragments import divide
from terngrad_tf.distribute.local_sgd.measured_steps import MeasuredSteps
from terngrad_tf.distribute.local_sgd.outer_updates import OuterUpdates
from terngrad_tf.distribute.local_sgd.overlap import OverlappedExchange
from terngrad_tf.distribute.local_sgd.paced_steps import PacedSteps
from terngrad_tf.distribute.local_sgd.replica_state import ReplicaState
from terngrad_tf.distribute.local_sgd.schedule import StepSchedule
from terngrad_tf.distribute.local_sgd.waited_exchange import WaitedExchange
from terngrad_tf.distribute.steps import local_steps_optimizer as interface
from terngrad_tf.distribute.steps.contexts import local_updates


@keras.saving.register_keras_serializable(package="terngrad_tf")
class DiLoCo(interface.LocalStepsOptimizer):
    """Lets every replica take `sync_every` steps of its own, then exchanges what they changed.

    Replica k of N has its own weights `w_k` and inner optimizer's state. In an exchange the outer
    optimizer takes the mean change as a gradient, and all replicas continue from the result:

        g = (1/N) sum_k (w - w_k)        exchanged as gradients are, by default as ternary codes
        w = outer(w, g)                  then all w_k = w

    Callbacks, evaluation and saved models see `w`. See "Local steps" in the documentation.

    Example:
    >>> strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    ...     model.compile(DiLoCo(keras.optimizers.SGD(0.1), sync_every=4), "mse")
    >>> history = model.fit(tf.ones([8, 1]), tf.ones([8, 1]), batch_size=2, verbose=0)

    Args:
        inner: optimizer of each replica's own steps, or its name.
        sync_every: steps from one exchange to the next. Default 32, without `sync_seconds`. "auto":
            the fewest of 1, 2, 4, 8, 16 and 32 whose step takes at most 1.1 times as long as with
            32, by times that `model.fit` measures in its first steps; needs `model.fit`,
            `fragments=1` and `overlap=0`.
        sync_seconds: seconds between exchanges, instead of `sync_every`; needs the same.
        outer: optimizer that takes mean changes as gradients, or its name. Default: `SGD(1.0)` with
            Nesterov momentum of `1 - 16 / sync_every`, at least 0 and at most 0.5; 0 with "auto".
        fragments: groups of weights exchanged in turn; a divisor of `sync_every`. Default 1.
        overlap: steps taken while changes travel, at most `sync_every / fragments`. Default 0:
            replicas wait. Between processes it needs exchanges by CPU.
        alpha: with `overlap`, the share of its own weights that a replica keeps. Default 0.5.
        error_feedback: whether the part of changes that an exchange leaves out is added to the next
            changes; needs the strategy's `bits_per_element`. Default None: if it is set.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is out of range, or an option belongs to the other optimizer.

    Source: Douillard et al., DiLoCo, 2023 (arXiv 2311.08105); Stich, Local SGD, ICLR 2019 (arXiv
    1805.09767); Douillard et al., Streaming DiLoCo, 2025 (arXiv 2501.18512).
    """

    def __init__(
        self,
        inner: keras.optimizers.Optimizer | str,
        sync_every: int | Literal["auto"] | None = None,
        *,
        sync_seconds: float | None = None,
        outer: keras.optimizers.Optimizer | str | None = None,
        fragments: int = 1,
        overlap: int = 0,
        alpha: float = 0.5,
        error_feedback: bool | None = None,
        name: str = "diloco",
    ) -> None:
        turns = options.turns_of(sync_every, sync_seconds, fragments, overlap)
        options.check_mixing(alpha, error_feedback)
        sync_every = turns.sync_every if turns else sync_every
        inner, outer = options.optimizers_of(inner, outer, sync_every, sync_seconds)
        super().__init__(learning_rate=0.0, name=name)
        self.sync_every = sync_every
        self.sync_seconds = sync_seconds
        self.fragments = fragments
        self.overlap = overlap
        self.alpha = float(alpha)
        self.error_feedback = error_feedback
        self.outer = outer
        # Differs between replicas; `replica_state` saves it.
        self._inner = Untracked(inner)
        self._turns: Any = turns  # None if time or a measurement decides
        # Keras places this optimizer's variables in this scope, too.
        self._strategy = tf.distribute.get_strategy()
        self.schedule = interface.Schedule(self.iterations)
        self._views: Any = None

    @property
    def shared_variables(self) -> list[keras.Variable]:
        """Variables that are the same on all replicas."""
        return super().variables + self.outer.variables + private.noise_variables(self.outer)

    @property
    def variables(self) -> list[keras.Variable]:
        """The shared variables, then the inner optimizer's, of which each replica has its own."""
        return self.shared_variables + self._inner.value.variables

    @property
    def groups(self) -> list[list[int]]:
        """Weights that are exchanged together: their positions in the list given to `build`."""
        return self._groups.value

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's learning rate."""
        return self._inner.value.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self._inner.value.learning_rate = learning_rate

    def scale_loss(self, loss: Any) -> Any:
        """Scales the loss as the inner optimizer does, which divides gradients by the factor."""
        return self._inner.value.scale_loss(loss)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates each replica's own variables. `model.fit` calls it before the first step.

        Args:
            variables: list of the weights to be trained, created under a `TernGradStrategy`.
        """
        if self.built:
            return
        super().build(variables)
        self.outer.build(variables)
        self._steps_since_exchange = self._counter((), "zeros", "steps_since_exchange")
        if self.fragments > 1:
            self._exchanges = self._counter([self.fragments], "zeros", "exchanges_of_groups")
        if self._turns is None:
            unknown = "ones" if self.sync_seconds else "zeros"
            self._steps_of_round = self._counter((), unknown, "steps_of_round")
        strategy, inner = self._strategy, self._inner.value
        takes_steps = private.is_own(strategy)
        if takes_steps:
            quantization = private.gradient_ops(strategy).quantization
            self.error_feedback = options.has_error_feedback(self.error_feedback, quantization)
        shared = [variable.value for variable in variables]
        self._groups = Untracked(divide([v.shape.num_elements() for v in shared], self.fragments))
        with _variables_of_replicas(strategy):
            own = _OwnVariables(
                weights=_zeros_like(shared),
                changes=_zeros_like(shared) if self.overlap else [],
                counts=[tf.Variable(tf.zeros([3], tf.int64))] if self.sync_seconds else [],
                remainders=_zeros_like(shared) if self.error_feedback else [],
            )
            if takes_steps:
                self._views = private.LocalWeights(
                    shared, own.weights, self.groups, lambda group: self.schedule.is_renewed(group)
                )
            with self._views.own_values() if takes_steps else contextlib.nullcontext():
                inner.build(variables)
        of_inner = [variable.value for variable in inner.variables]
        self.replica_state = ReplicaState(
            strategy,
            [*own.weights, *of_inner, *own.changes, *own.counts, *own.remainders],
            on_set=lambda: self.schedule.restored(),
        )
        if takes_steps:
            self.schedule = self._make_schedule(list(variables), own)
            self.claim_weights()

    @property
    def local_weights(self) -> Any:
        """The replicas' own values of the weights; None before `build`."""
        return self._views

    def claim_weights(self) -> None:
        """Takes the weights over from another `DiLoCo` that was built for them."""
        self._strategy.extended.add_local_weights(self._views)
        self.schedule.claimed()

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Takes one step, in replica context; an exchange follows if it is due.

        Args:
            grads: list of gradients, None for unused weights. As under every strategy, they are of
                a loss divided by the number of replicas.
            trainable_variables: the weights of the gradients. Default: those given to `build`.

        Raises:
            ValueError: the optimizer was not built before the step, or not under a
                `TernGradStrategy`.
        """
        context = tf.distribute.get_replica_context()
        _check_context(context, self._views)
        # A replica's own step follows the mean over its own examples.
        count = context.strategy.num_replicas_in_sync
        grads = [_times(gradient, count) for gradient in grads]
        with local_updates():
            self._inner.value.apply(grads, trainable_variables)
        private.merge(self._after_step)

    def synchronize(self) -> None:
        """Exchanges what steps since the last exchange changed, if there were any.

        In a cluster all processes call it, outside of `strategy.run`, after the same number of
        steps (with `sync_seconds`, steps of `fit`).
        """
        if self.built and self.steps_since_exchange:
            with places.at("an exchange of local steps"):
                self.schedule.synchronize()

    def save_own_variables(self, store: Any) -> None:
        """Saves shared counters and the state of every replica to a `.keras` file."""
        arrays = [variable.numpy() for variable in super().variables] + self.replica_state.get()
        for position, array in enumerate(arrays):
            store[str(position)] = array

    def load_own_variables(self, store: Any) -> None:
        """Restores what `save_own_variables` saved.

        Raises:
            ValueError: the file was saved with other weights or options.
        """
        arrays = [store[str(position)][()] for position in range(len(store.keys()))]
        counters = super().variables
        for variable, array in zip(counters, arrays, strict=False):
            variable.assign(array)
        self.replica_state.restore(arrays[len(counters) :])

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        """Ends `fit`: exchanges; with `use_ema` weights become the outer optimizer's average."""
        self.synchronize()
        self.outer.finalize_variable_values(var_list)

    @property
    def steps_since_exchange(self) -> int:
        """Steps since an exchange of all weights together ended; 0 right after it."""
        steps: Any = self._steps_since_exchange
        return int(steps.numpy())

    @property
    def steps_of_round(self) -> int:
        """Steps of `fit` from the last exchange to the next, with `sync_seconds` or "auto".

        0 while `sync_every="auto"` measures.
        """
        return int(self._steps_of_round.numpy())

    @property
    def steps_of_last_round(self) -> int:
        """Steps of `fit` before the last exchange, with `sync_seconds`; 0 before one.

        `fit` may end a round early, so these may be fewer than planned.
        """
        return self.schedule.steps_of_last_round

    @property
    def num_own_steps(self) -> int:
        """Steps that the replicas of this process took."""
        return self.schedule.num_own_steps

    def get_config(self) -> dict[str, Any]:
        """Arguments that make an equal optimizer."""
        serialize = keras.optimizers.serialize
        return {
            "name": self.name,
            "inner": serialize(self._inner.value),
            "sync_every": self.sync_every,
            "sync_seconds": self.sync_seconds,
            "outer": serialize(self.outer),
            "fragments": self.fragments,
            "overlap": self.overlap,
            "alpha": self.alpha,
            "error_feedback": self.error_feedback,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "DiLoCo":
        """Makes the optimizer of a configuration."""
        made = {
            role: keras.optimizers.deserialize(config[role], custom_objects)
            for role in ("inner", "outer")
        }
        return cls(**{**config, **made})

    def _counter(self, shape, initializer, name):
        return self.add_variable(
            shape, initializer, "int64", aggregation="only_first_replica", name=name
        )

    def _make_schedule(self, weights, own):
        """Puts schedule, exchange and selection together; under a `TernGradStrategy`."""
        strategy = self._strategy
        selection = WholeChanges()
        if self.error_feedback:
            op, devices = private.gradient_ops(strategy), strategy.extended.worker_devices
            selection = ErrorFeedback(op, devices, private.variable_paths(weights), own.remainders)
        exchanges = self._exchanges if self.fragments > 1 else None
        updates = OuterUpdates(
            strategy, self.outer, weights, self.groups, self._views, selection, exchanges
        )
        steps = self._steps_since_exchange
        if self.sync_seconds:
            return PacedSteps(
                self.sync_seconds,
                updates,
                steps=steps,
                iterations=[self.iterations, self._inner.value.iterations],
                of_round=self._steps_of_round,
                counts=own.counts[0],
            )
        if self._turns is None:
            return MeasuredSteps(updates, steps, self.iterations, self._steps_of_round)
        exchange = WaitedExchange(updates)
        if self.overlap:
            exchange = OverlappedExchange(updates, own.changes, self.alpha)
        return StepSchedule(self._turns, exchange, steps, self.iterations)

    def _after_step(self, strategy):
        strategy.extended.keep_statistics()
        iterations: Any = self.iterations
        iterations.assign_add(1)
        self._steps_since_exchange.assign_add(1)
        # An empty batch masks gradients, but weights take part.
        with private.padded_replica(private.NO_PADDING):
            self.schedule.after_step()


@dataclasses.dataclass(frozen=True)
class _OwnVariables:
    """Variables of which each replica has its own, beside the inner optimizer's.

    Attributes:
        weights: the replicas' weights.
        changes: changes that travel, with `overlap`.
        counts: see `PacedSteps`, with `sync_seconds`.
        remainders: what `ErrorFeedback` keeps.
    """

    weights: list[tf.Variable]
    changes: list[tf.Variable]
    counts: list[tf.Variable]
    remainders: list[tf.Variable]


def local_steps_optimizer(optimizer: keras.optimizers.Optimizer) -> DiLoCo | None:
    """The `DiLoCo` that an optimizer is or scales the loss for; None for other optimizers."""
    found: Any = interface.local_steps_optimizer(optimizer)
    return found


@contextlib.contextmanager
def _variables_of_replicas(strategy) -> Iterator[None]:
    """Context in which each replica of a `TernGradStrategy` gets own variables."""
    if not private.is_own(strategy):
        yield
        return
    with strategy.scope(), strategy.extended.variables_of_replicas():
        yield


def _check_context(context, views):
    """Refuses a step outside of replicas, before `build`, or on weights that others train."""
    if context is None or not private.is_own(context.strategy):
        raise ValueError(
            "`DiLoCo` takes steps in `model.fit` and `strategy.run` under a `TernGradStrategy`."
            f" Received: {tf.distribute.get_strategy()}"
        )
    if views is None:
        raise ValueError(
            "`DiLoCo` must be built before a step: give the model an input shape, or call"
            " `optimizer.build(model.trainable_variables)` in the strategy's scope"
        )
    if not context.strategy.extended.has_local_weights(views):
        raise ValueError(
            "`DiLoCo` must be the optimizer that trains its weights, but another one was"
            " compiled or built for them since. Call its `claim_weights` before the step"
        )


def _zeros_like(variables):
    return [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in variables]


def _times(gradient, count):
    if gradient is None or count == 1:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * count, gradient.indices, gradient.dense_shape)
    return gradient * count
