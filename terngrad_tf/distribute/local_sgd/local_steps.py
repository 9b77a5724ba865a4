"""Training in steps of each replica's own, whose changes travel now and then: `DiLoCo`."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.arguments import check
from terngrad_tf.distribute import private
from terngrad_tf.distribute.local_sgd.error_feedback import ErrorFeedback
from terngrad_tf.distribute.local_sgd.fragments import Turns, divide
from terngrad_tf.distribute.local_sgd.kept_logs import KeptLogs
from terngrad_tf.distribute.local_sgd.outer_momentum import default_outer_momentum
from terngrad_tf.distribute.local_sgd.overlap import ChangesUnderWay
from terngrad_tf.distribute.local_sgd.paced_steps import PacedSteps
from terngrad_tf.distribute.local_sgd.replica_state import ReplicaState
from terngrad_tf.places import places


@keras.saving.register_keras_serializable(package="terngrad_tf")
class DiLoCo(private.LocalStepsOptimizer):
    """Lets every replica take `sync_every` steps of its own, then exchanges what they changed.

    Each replica k of N has weights `w_k` and a state of the inner optimizer of its own. After
    `sync_every` steps all exchange by how much their weights changed, and the outer optimizer takes
    the mean of the changes as a gradient:

        g = (1/N) sum_k (w - w_k)        exchanged as gradients are: by default as ternary codes
        w = outer(w, g)                  then all w_k = w

    So gradients travel once in `sync_every` steps, under every option of `TernGradStrategy`
    (`grad_bits=32` exchanges float changes). In between `model.fit` sends nothing, if its data set
    repeats without end; otherwise a message of a few bytes a step tells processes whether others
    have examples left.

    What anybody sees outside of training steps are the weights of the last exchange, the same bits
    on all processes. An exchange is made early at the end of an epoch, before its validation, and
    at the end of `fit`; callbacks within an epoch see the last one. A function given to
    `strategy.run` sees each replica's own weights (call `synchronize` before you evaluate there).
    Batch-norm statistics are averaged over processes in exchanges. Logs that callbacks get are
    means over all processes, as of the last exchange.

    With `fragments=P` not all weights are exchanged at once (Streaming DiLoCo): they are divided,
    whole variables each, into P groups of about as many elements (from the largest variable to the
    smallest, each goes to the group that has least so far). The next group is exchanged every
    `sync_every / P` steps, each one therefore every `sync_every` steps, and a P-th of the bytes
    travels at a time. An early exchange is of all groups that changed since their last; then turns
    begin anew, with the first group after `sync_every / P` steps. The outer optimizer's
    `iterations`, by which its schedule goes, are the exchanges of the group at hand; it clips that
    group, and averages (`use_ema`) all weights in each exchange. Batch-norm statistics travel with
    the last group.

    With `overlap=T` replicas do not wait while changes travel: a thread exchanges what they had
    changed when it was due, and the outer optimizer takes the mean `T` steps later, where each
    replica gets

        w_k = alpha * w_k + (1 - alpha) * w

    so that what it learned in between is not lost. Steps wait where the exchange is not over then.
    An early exchange first waits for the one under way, and then is as without `overlap`: all
    `w_k = w`. What is under way is part of what is saved. Batch-norm statistics and logs travel
    when the mean is taken.

    With `sync_seconds` in place of `sync_every`, about so many seconds lie between two exchanges,
    and processes of unequal speed take unequal numbers of steps, so that none waits for another. A
    change counts by the examples `n_k` that it was learned from, those of a replica's process:

        g = sum_k n_k (w - w_k) / sum_k n_k

    In `model.fit` a step then is as many examples as a batch of all replicas together on average,
    whoever takes them: in one step a slow process may take none of its own, and a fast one two. So
    steps, epochs, `iterations`, which schedules go by, and what callbacks see are the same on all.
    In an exchange processes tell their examples and how many steps they should manage until the
    next, by the time that theirs took (the first rounds have 1, 1, 4, 16 ... steps); the mean is
    the number of steps of `fit` until then. Virtual replicas of one process take equally many.
    Steps send nothing at all, so the data must repeat without end where there are several
    processes (each takes its own at its own speed, so where these differ, those of fast ones count
    more), and neither loss scaling nor synchronized batch norm may be used there. What takes time
    in a callback is taken in each step of `fit`; fewer steps of its own do not make up for it. A
    run that was saved goes on where it stopped, but as time decides, not to the bit. `ema_momentum`
    of the outer optimizer is that of one step of `fit`. It needs `model.fit`.

    With the strategy's `bits_per_element`, exchanges meet the budget by error feedback: what
    travels are the largest changes of all weights, those of a tensor with their mean size, so many
    that their stream takes so many bits; what was left over is added to the next change. That
    suits inner optimizers whose changes differ much in size, as SGD's do and Adam's do not.
    `error_feedback=False` raises the scale instead, as for gradients, which changes of many steps
    do not bear.

    With `outer=keras.optimizers.SGD(1.0)`, exchanges average the weights (local SGD); that with
    `sync_every=1` and an inner `SGD` is synchronous training.

    Clipping, weight decay, schedules and gradient accumulation are the inner optimizer's, and act
    on each replica's gradient; `iterations` counts its steps. A moving average of the weights
    (`use_ema`) is the outer optimizer's, updated in exchanges. With `mixed_float16` processes agree
    in every step on whether gradients overflowed.

    A process holds the weights and the outer optimizer's state once, and the weights and the inner
    optimizer's state once more for each of its replicas; with `overlap` also, for each replica, the
    changes under way, and with error feedback what was left over. All are saved in `.keras` files
    and in `tf.train.Checkpoint`s, so that training goes on as if it had not stopped, to the bit. In
    a cluster that is so where each process saves and loads a file of its own, or where all call
    `replica_state.gather()` before the chief saves and `replica_state.scatter()` after it loaded,
    as this package's programs do.

    Example:
    >>> strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    ...     model.compile(DiLoCo(keras.optimizers.SGD(0.1), sync_every=4), "mse")
    >>> history = model.fit(tf.ones([8, 1]), tf.ones([8, 1]), batch_size=2, verbose=0)

    Args:
        inner: the optimizer of each replica's own steps, or its name.
        sync_every: steps from one exchange to the next. Default 32, without `sync_seconds`.
        sync_seconds: seconds from one exchange to the next, instead of `sync_every`; all weights
            are then exchanged at once (no `fragments`), and waited for (no `overlap`).
        outer: the optimizer that takes mean changes as gradients, or its name. Default:
            `keras.optimizers.SGD(1.0, momentum, nesterov=True)`, with a momentum of 0.5 from 32
            steps on, of 0 up to 16, and in between of `1 - 16 / sync_every`.
        fragments: groups of weights that are exchanged in turn; a divisor of `sync_every`, at most
            the number of weights. Default 1: all weights at once.
        overlap: steps that are taken while changes travel, at most the `sync_every / fragments`
            from one exchange to the next. Default 0: exchanges are waited for. Needs CPUs where
            there are several processes.
        alpha: with `overlap`, the share of its own weights that a replica keeps, from 0 to 1.
            Default 0.5.
        error_feedback: whether what exchanges leave of changes is added to the next, see above;
            needs the strategy's `bits_per_element`. Default None: where the strategy has it.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is out of range, or an option belongs to the other optimizer.

    Source: Douillard et al., DiLoCo, 2023 (arXiv 2311.08105); Stich, Local SGD converges fast and
    communicates little, ICLR 2019 (arXiv 1805.09767); Douillard et al., Streaming DiLoCo, 2025
    (arXiv 2501.18512); steps by speed as in Liu et al., Asynchronous Local-SGD, 2024
    (arXiv 2401.09135), and changes by examples as in McMahan et al., AISTATS 2017
    (arXiv 1602.05629); error feedback as in Sarfi et al., SparseLoCo, 2025 (arXiv 2508.15706).
    """

    def __init__(
        self,
        inner: keras.optimizers.Optimizer | str,
        sync_every: int | None = None,
        *,
        sync_seconds: float | None = None,
        outer: keras.optimizers.Optimizer | str | None = None,
        fragments: int = 1,
        overlap: int = 0,
        alpha: float = 0.5,
        error_feedback: bool | None = None,
        name: str = "diloco",
    ) -> None:
        if sync_seconds is None:
            sync_every = 32 if sync_every is None else sync_every
            turns = Turns(sync_every, fragments, overlap)
        else:
            turns = None
            is_number = isinstance(sync_seconds, int | float) and not isinstance(sync_seconds, bool)
            is_positive = is_number and 0 < sync_seconds < math.inf
            check(is_positive, "sync_seconds", "must be a positive number", sync_seconds)
            check(sync_every is None, "sync_every", "must not go with `sync_seconds`", sync_every)
            check(fragments == 1, "fragments", "must be 1 with `sync_seconds`", fragments)
            check(overlap == 0, "overlap", "must be 0 with `sync_seconds`", overlap)
        is_share = isinstance(alpha, int | float) and 0 <= alpha <= 1
        check(is_share, "alpha", "must be a number from 0 to 1", alpha)
        is_known = error_feedback is None or isinstance(error_feedback, bool)
        check(is_known, "error_feedback", "must be a bool or None", error_feedback)
        if outer is None:
            momentum = default_outer_momentum(sync_every)
            outer = keras.optimizers.SGD(1.0, momentum=momentum, nesterov=momentum > 0)
        inner, outer = keras.optimizers.get(inner), keras.optimizers.get(outer)
        for role, optimizer in (("inner", inner), ("outer", outer)):
            scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
            check(
                not scales_loss and not isinstance(optimizer, DiLoCo),
                role,
                "must be an optimizer that scales no loss and takes no local steps; put DiLoCo into"
                " LossScaleOptimizer",
                optimizer,
            )
        check(not inner.use_ema, "inner", "must have no moving average; give it to `outer`", inner)
        accumulates = sync_seconds is not None and inner.gradient_accumulation_steps is not None
        rule = "must have no gradient_accumulation_steps with `sync_seconds`"
        check(not accumulates, "inner", rule, inner)
        for option in ("loss_scale_factor", "gradient_accumulation_steps"):
            check(getattr(outer, option) is None, "outer", f"must have no {option}", outer)
        super().__init__(learning_rate=0.0, name=name)
        self.sync_every = sync_every
        self.sync_seconds = sync_seconds
        self.fragments = fragments
        self.overlap = overlap
        self.alpha = float(alpha)
        self.error_feedback = error_feedback
        self._turns: Any = turns  # none with `sync_seconds`
        self._paced: PacedSteps | None = None
        self.outer = outer
        # What it is told, whatever it makes of that.
        self._ema_momentum = outer.get_config()["ema_momentum"]
        # As an attribute, it would be saved as if it were the same on all replicas.
        self._get_inner = lambda: inner
        self._kept_logs = KeptLogs()
        # One each: of one that is traced for many groups TensorFlow would warn.
        self._get_exchange, self._get_receive = (
            functools.cache(functools.partial(self._as_function, method))
            for method in (self._exchange, self._receive)
        )

    @property
    def shared_variables(self) -> list[keras.Variable]:
        """Variables that are the same on all replicas."""
        return self._variables + self.outer.variables

    @property
    def variables(self) -> list[keras.Variable]:
        """Those shared, then the inner optimizer's, of which each replica has its own."""
        return self.shared_variables + self._get_inner().variables

    @property
    def groups(self) -> list[list[int]]:
        """Weights that are exchanged together: their positions in the list given to `build`."""
        return self._get_groups()

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's."""
        return self._get_inner().learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self._get_inner().learning_rate = learning_rate

    def scale_loss(self, loss: Any) -> Any:
        """As the inner optimizer's, which divides gradients by the factor again."""
        return self._get_inner().scale_loss(loss)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes what each replica has of its own. `model.fit` does so before the first step.

        Args:
            variables: list of the weights to be trained, made under a `TernGradStrategy`.
        """
        if self.built:
            return
        super().build(variables)
        self.outer.build(variables)
        self._steps_since_exchange = self.add_variable(
            (), "zeros", "int64", aggregation="only_first_replica", name="steps_since_exchange"
        )
        if self.fragments > 1:
            self._exchanges = self.add_variable(
                [self.fragments],
                "zeros",
                "int64",
                aggregation="only_first_replica",
                name="exchanges_of_groups",
            )
        if self.sync_seconds:
            self._steps_of_round = self.add_variable(
                (), "ones", "int64", aggregation="only_first_replica", name="steps_of_round"
            )
        weights = list(variables)
        # A list as attribute would be counted among the optimizer's own variables and saved again.
        self._get_weights = lambda: weights
        strategy = self._distribution_strategy
        shared = [variable.value for variable in weights]
        groups = divide([v.shape.num_elements() for v in shared], self.fragments)
        self._get_groups = lambda: groups
        kept, counts, left = [], [], []
        self._feedback = None
        if private.is_own(strategy):
            op = private.gradient_ops(strategy)
            self._set_error_feedback(op.quantization)
            with strategy.scope(), strategy.extended.variables_of_replicas():
                own = [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in shared]
                if self.error_feedback:
                    left = [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in shared]
                    paths = private.variable_paths(weights)
                    devices = strategy.extended.worker_devices
                    self._feedback = ErrorFeedback(op, devices, paths, left)
                if self.overlap:
                    kept = [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in shared]
                    self._under_way = ChangesUnderWay(
                        strategy, self.outer, groups, kept, bool(self.error_feedback)
                    )
                if self.sync_seconds:
                    counts = [tf.Variable(tf.zeros([3], tf.int64))]
                self._views = private.LocalWeights(shared, own, groups, self._is_renewed)
                with self._views.own_values():
                    self._get_inner().build(variables)
            if self.sync_seconds:
                self._paced = PacedSteps(
                    strategy,
                    self.sync_seconds,
                    counters=(self._iterations, self._get_inner().iterations),
                    steps=self._steps_since_exchange,
                    of_round=self._steps_of_round,
                    counts=counts[0],
                    exchange=functools.partial(self._exchange_by_examples, strategy),
                )
        else:
            # Of a model that was saved: nothing but a step needs a strategy.
            own = [tf.Variable(variable) for variable in shared]
            if self.error_feedback:
                left = [tf.Variable(variable) for variable in shared]
            if self.overlap:
                kept = [tf.Variable(variable) for variable in shared]
            if self.sync_seconds:
                counts = [tf.Variable(tf.zeros([3], tf.int64))]
            self._get_inner().build(variables)
        self._get_own = lambda: own
        inner_variables = [variable.value for variable in self._get_inner().variables]
        self.replica_state = ReplicaState(
            strategy, own + inner_variables + kept + counts + left, on_set=self._forget_changes
        )
        if private.is_own(strategy):
            self.claim_weights()

    def claim_weights(self) -> None:
        """Takes the weights over from another `DiLoCo` that was built for them."""
        self._distribution_strategy.extended.add_local_weights(self._views)
        if self._paced:
            self._paced.forget()

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Takes one step, in replica context; an exchange follows where it is due.

        Args:
            grads: list of gradients, None for weights that are not used. As under every strategy,
                they are of a loss divided by the number of replicas.
            trainable_variables: their weights. Default: those of `build`.

        Raises:
            ValueError: the optimizer was not built before the step, or not under a
                `TernGradStrategy`.
        """
        context = tf.distribute.get_replica_context()
        if context is None or not private.is_own(context.strategy):
            raise ValueError(
                "`DiLoCo` takes steps in `model.fit` and `strategy.run` under a `TernGradStrategy`."
                f" Received: {tf.distribute.get_strategy()}"
            )
        if not self.built:
            raise ValueError(
                "`DiLoCo` must be built before a step: give the model an input shape, or call"
                " `optimizer.build(model.trainable_variables)` in the strategy's scope"
            )
        if not context.strategy.extended.has_local_weights(self._views):
            raise ValueError(
                "`DiLoCo` must be the optimizer that trains its weights, but another one was"
                " compiled or built for them since. Call its `claim_weights` before the step"
            )
        # A replica's own step is by the mean over its own examples.
        count = context.strategy.num_replicas_in_sync
        grads = [_times(gradient, count) for gradient in grads]
        with private.local_updates():
            self._get_inner().apply(grads, trainable_variables)
        private.merge(self._after_step)

    def synchronize(self) -> None:
        """Exchanges what steps since the last exchange changed, if there were any.

        In a cluster all processes call it, outside of `strategy.run`, after equally many steps, of
        `fit` where there are `sync_seconds`.
        """
        steps = self.steps_since_exchange if self.built else 0
        if not steps:
            return
        with places.at("an exchange of local steps"):
            self._synchronize(steps)

    def _synchronize(self, steps):
        if self._paced:
            self._paced.exchange()
        else:
            with self._distribution_strategy.scope():
                under_way = self._turns.under_way_after(steps)
                if under_way is not None:
                    self._get_receive(under_way)()
                for group in self._turns.changed_after(steps):
                    self._get_exchange(group)()
            self._steps_since_exchange.assign(0)

    def save_own_variables(self, store: Any) -> None:
        """Saves own variables, and what each replica has of its own, to a `.keras` file."""
        arrays = [variable.numpy() for variable in self._variables] + self.replica_state.get()
        for position, array in enumerate(arrays):
            store[str(position)] = array

    def load_own_variables(self, store: Any) -> None:
        """Restores what `save_own_variables` saved.

        Raises:
            ValueError: the file is of other weights or options.
        """
        arrays = [store[str(position)][()] for position in range(len(store.keys()))]
        for variable, array in zip(self._variables, arrays, strict=False):
            variable.assign(array)
        self.replica_state.restore(arrays[len(self._variables) :])

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
        """With `sync_seconds`, steps of `fit` from the last exchange to the next."""
        return int(self._steps_of_round.numpy())

    @property
    def silent_steps(self) -> bool:
        """Whether steps must send nothing; see the base class."""
        return self.sync_seconds is not None

    @property
    def num_own_steps(self) -> int:
        """Steps that this process's replicas took so far, whatever they count as."""
        iterations: Any = self.iterations
        return self._paced.num_own_steps if self._paced else int(iterations.numpy())

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """As many steps of a process's own as it has time for; see the base class."""
        return self._paced.run(step, size) if self._paced else step()

    def agree_on_logs(self, logs: Any, reduce: Any) -> Any:
        """Means over processes, as of the last exchange; see the base class."""
        if self._paced:
            return self._paced.agree_on_logs(logs, reduce)
        steps = tf.convert_to_tensor(self._steps_since_exchange)
        steps -= self.overlap
        return self._kept_logs.agree(logs, reduce, tf.equal(steps % self._turns.interval, 0))

    def get_config(self) -> dict[str, Any]:
        """Arguments that make an equal optimizer."""
        serialize = keras.optimizers.serialize
        return {
            "name": self.name,
            "inner": serialize(self._get_inner()),
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

    def _set_error_feedback(self, quantization):
        has_budget = quantization.bits_per_element is not None
        rule = "must go with the strategy's `bits_per_element`"
        check(has_budget or not self.error_feedback, "error_feedback", rule, self.error_feedback)
        if self.error_feedback is None:
            self.error_feedback = has_budget

    def _as_function(self, method, group):
        bound = functools.partial(method, self._distribution_strategy, group)
        return tf.function(bound, autograph=False)

    def _forget_changes(self):
        if self.overlap and private.is_own(self._distribution_strategy):
            self._under_way.forget()
        if self._paced:
            self._paced.forget()

    # What follows runs in cross-replica context, all but `_update_replica`.

    def _after_step(self, strategy):
        strategy.extended.keep_statistics()
        self._iterations.assign_add(1)
        self._steps_since_exchange.assign_add(1)
        if self._paced:
            if private.optimizer_of_local_step() is not self:
                raise ValueError("`sync_seconds` must go with `model.fit`, which takes the steps")
            examples = strategy.extended.examples_of_run
            self._paced.count(1 if examples is None else examples)
            return
        steps = tf.convert_to_tensor(self._steps_since_exchange)
        # That a replica had no examples in this step is about its gradient, not its weights.
        with private.padded_replica(private.NO_PADDING):
            if self.overlap:
                self._in_turn(self._receive, strategy, self._turns.arrived_after(steps))
                self._in_turn(self._send, strategy, self._turns.group_after(steps))
            else:
                self._in_turn(self._exchange, strategy, self._turns.group_after(steps))
                if self.fragments == 1:
                    is_due = tf.equal(steps, self.sync_every)
                    self._steps_since_exchange.assign(tf.where(is_due, tf.zeros_like(steps), steps))

    def _in_turn(self, method, strategy, turn):
        def call(group):
            method(strategy, group)
            return tf.constant(0)

        calls = [functools.partial(call, group) for group in range(self.fragments)]
        tf.switch_case(turn, [*calls, lambda: tf.constant(0)])

    def _is_renewed(self, group):
        """Whether the last step exchanged a group, so that replicas take over the shared values."""
        steps = tf.convert_to_tensor(self._steps_since_exchange)
        if self.overlap or self._paced:
            return tf.equal(steps, 0)
        return tf.equal(steps, 0) | tf.equal(self._turns.group_after(steps), group)

    def _exchange(self, strategy, group):
        self._update(strategy, group, self._changes(strategy, group), are_summed=False)

    def _send(self, strategy, group):
        changes = self._changes(strategy, group)
        self._under_way.send(group, changes, self._exchanges_of(group))

    def _receive(self, strategy, group):
        brought = self._views.own_tensors(group)
        reduced = self._under_way.receive(group, self._exchanges_of(group), brought)
        self._update(strategy, group, reduced, are_summed=True)
        self._views.mix(group, self.alpha)

    def _exchanges_of(self, group):
        """How often a group was exchanged, int64, by which the outer optimizer's schedule goes."""
        if self.fragments > 1:
            return self._exchanges[group]
        return tf.convert_to_tensor(self.outer.iterations)

    def _exchange_by_examples(self, strategy, share, steps):
        # As much is forgotten as in so many updates.
        self.outer.ema_momentum = self._ema_momentum ** tf.cast(steps, tf.float32)
        try:
            changes = self._changes(strategy, 0, share)
            self._update(strategy, 0, changes, are_summed=False)
        finally:
            self.outer.ema_momentum = self._ema_momentum

    def _changes(self, strategy, group, share=None):
        """What travels of a group: of each weight, a tensor for each local replica.

        The sum over all replicas is the mean change, or `share` times as much of a replica.
        """
        changes = self._views.changes(group)
        if share is not None:
            changes = [[change * tf.cast(share, change.dtype) for change in c] for c in changes]
        if self._feedback is not None:
            positions, step = self.groups[group], self._exchanges_of(group)
            changes = self._feedback.take(positions, changes, step)
        count = strategy.num_replicas_in_sync
        return [[change / count for change in c] for c in changes]

    def _update(self, strategy, group, changes, are_summed):
        """Lets the outer optimizer take changes of a group, and sum them where nobody did."""
        if self.fragments > 1:
            iterations: Any = self.outer.iterations
            iterations.assign(self._exchanges[group])
            self._exchanges.assign_add(tf.one_hot(group, self.fragments, dtype=tf.int64))
        replica = tf.autograph.experimental.do_not_convert(self._update_replica)
        if not are_summed:
            changes = [private.per_replica(of_replicas) for of_replicas in changes]
        strategy.extended.call_for_each_replica(replica, args=(group, changes, are_summed))
        if group == self.fragments - 1:
            strategy.extended.average_statistics()

    def _update_replica(self, group, changes, are_summed):
        weights = self._get_weights()
        of_one_size = private.gradients_of_one_size(self._feedback is not None)
        with self._views.shared_values(), private.local_updates() if are_summed else of_one_size:
            self.outer.apply(changes, [weights[i] for i in self.groups[group]])


def local_steps_optimizer(optimizer: keras.optimizers.Optimizer) -> DiLoCo | None:
    """The `DiLoCo` that an optimizer is, or scales the loss for; None for others."""
    return private.local_steps_optimizer(optimizer)


def _times(gradient, count):
    if gradient is None or count == 1:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * count, gradient.indices, gradient.dense_shape)
    return gradient * count
