"""The cross-device op: packed codes for gradients, stock TensorFlow for everything else."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.common.arguments import check
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.notices import tell
from terngrad_tf.distribute.consistency import handshake
from terngrad_tf.distribute.exchange import buckets as exchange
from terngrad_tf.distribute.exchange import sparse_rows
from terngrad_tf.distribute.exchange.observer import Observers
from terngrad_tf.distribute.exchange.options import AUTO, ExchangeOptions, quantization_of
from terngrad_tf.distribute.exchange.plan import Job, LocalScales, Plan, batches
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.symbols import symbol_positions
from terngrad_tf.distribute.exchange.traffic import Traffic
from terngrad_tf.distribute.steps.contexts import (
    gradients_are_changes,
    gradients_are_of_one_size,
)
from terngrad_tf.distribute.steps.slices import as_dense
from terngrad_tf.distribute.telemetry import statistics
from terngrad_tf.distribute.telemetry.last_step import TrafficLog
from terngrad_tf.distribute.telemetry.measurements import Measurements
from terngrad_tf.distribute.wire_selection.mode_choice import ModeChoice, quickest_mode
from terngrad_tf.distribute.wire_selection.wire_choice import WireChoice
from terngrad_tf.distribute.wire_selection.wire_trial import WireTrial

_XLA = (
    "`jit_compile=True` must not be combined with TernaryAllReduce: TensorFlow would drop the op"
    " from a compiled step. Use `jit_compile=False`, or give `jit_compile=True` to the model or to"
    " the function that `TernGradStrategy.run` calls."
)


class TernaryAllReduce(private.ExactCrossDeviceOps):
    """Sums gradients over replicas after rounding each to `{-1, 0, 1}` times a shared scale.

    Every replica k rotates its gradient by blocks and rounds the result, r_k. Packed words carry
    the codes; all replicas receive the same sum and rotate it back:

        s   = c * max_k rms(r_k)                                one scale per block
        t_k = floor(clip(f_k * r_k / s, -1, 1) * L + u_k)       u_k uniform in [0, 1)
        sum_k r_k ~ s / (a * L) * sum_k t_k

    Codes are whole numbers from -L to L, ternary ones with L = 1; for c, a and f_k see
    `terngrad_tf.ternary.rotation`. Gradients of Muon have codes of at least 6 bits, whole tables of
    embeddings of 4, and so have the embedding and the last layer of a language model, see
    `exchange.symbols`. `rotate=False` selects the rule of TernGrad's paper:

        s   = max_k min(clip_factor * std(g_k), max|g_k|)       one scale per tensor
        t_k = floor(clip(g_k / s, -1, 1) * L + u_k)
        sum_k g_k ~ s / L * sum_k t_k

    Keras scales each replica's loss by 1/N, so the sum is the mean of the replicas' gradients. Only
    gradients that Keras optimizers reduce are rounded; the strategy's stock op reduces metrics,
    losses, synchronized batch-norm and integers exactly. If a replica's gradient holds a NaN or
    Inf, the reduced tensor is NaN, or its block if rotated.

    The random bits depend only on `seed`, the optimizer's `iterations` and the element's place, see
    `Quantization`, so a resumed run rounds as if it had not stopped.

    Example:
    >>> strategy = tf.distribute.MirroredStrategy(cross_device_ops=TernaryAllReduce())

    Args:
        grad_bits: bits of a gradient's element, see `Quantization`. "auto": floats, codes of 4
            bits, ternary ones, or these by the wire "bidirectional", whichever should exchange the
            first model's gradients fastest on the measured links and processors; a more exact mode
            may take a tenth longer. A single process takes floats. Default 1, ternary.
        quantization: `Quantization`, the full rule of rounding, instead of `grad_bits`, or the
            other options beside "auto". Default `Quantization()`.
        wire: "allgather", "alltoall", "allreduce", "sparse", "bidirectional",
            "sparse_bidirectional" or "auto"; see `terngrad_tf.distribute.exchange.wires`. "auto" is
            the lossless wire of known size with the fewest bytes, or between processes another
            lossless one, with the same bits, that should be faster on their measured links. Default
            "auto"; `wire_choices` shows the choices.
        sparse_as_dense: how `IndexedSlices`, the gradients of embeddings, travel. "auto": as
            rounded rows with their positions, or as whole rounded tensors, whichever would take
            fewer bytes by the same codes in a step; all processes choose alike. Rows with the same
            position are summed first. Optimizers that square gradients then train as with a dense
            layer, since Keras squares each row of `IndexedSlices` separately. True: as whole
            tensors. False: rows travel as floats, once per read by a replica, as they do with
            `grad_bits=32` or `rotate=False` unless this is True. Default "auto".
        statistics_freq: `gradient_statistics` is recorded in steps divisible by this number that
            exchange ternary gradients; other steps have no cost. Default 0 (never).
        telemetry_freq: `telemetry` measures bytes and times of every step, and compares the reduced
            gradients with float ones in steps divisible by this number. Weights stay bit-identical.
            Default 0: no measurements.

    Raises:
        ValueError: an argument is out of range.

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878).
    """

    def __init__(
        self,
        *,
        grad_bits: int | str | None = None,
        quantization: Quantization | None = None,
        wire: str = "auto",
        sparse_as_dense: bool | str = "auto",
        telemetry_freq: int = 0,
        statistics_freq: int = 0,
    ) -> None:
        super().__init__()
        self.options = ExchangeOptions(
            quantization=quantization_of(grad_bits, quantization, wire),
            chooses_mode=grad_bits == AUTO,
            wire=wire,
            sparse_as_dense=sparse_as_dense,
            telemetry_freq=telemetry_freq,
            statistics_freq=statistics_freq,
        )
        self._mode_choice: ModeChoice | None = None
        self._wire_choice = WireChoice(wire, self.quantization)
        self._recorder = statistics.Recorder(statistics_freq)
        self.telemetry = Measurements(telemetry_freq)
        self._has_logits = False
        self._traffic = TrafficLog()
        self._observed_by = [
            *([self.telemetry] if telemetry_freq else []),
            *([self._recorder] if statistics_freq else []),
            self._traffic,
        ]
        private.install_patches()

    @property
    def quantization(self) -> Quantization:
        """How gradients are rounded; as ternary ones until `grad_bits="auto"` has chosen."""
        return self.options.quantization

    @property
    def traffic(self) -> Traffic | None:
        """`Traffic` of the last step that reduced gradients; None before the first one.

        Sparse gradients count with the rows of this process's replicas in that step, and as floats
        after a step of `float_steps`; others always count as rounded.
        """
        return self._traffic.latest

    def traffic_of(
        self, step: int, groups: Sequence[Sequence[int]] | None = None
    ) -> Traffic | None:
        """Returns the `Traffic` of the optimizer's next step after `step` steps.

        Args:
            step: integer.
            groups: lists of positions among the optimizer's variables, each exchanged in a separate
                step; the result is the sum over these steps. Default: all variables in each step.

        Returns:
            `traffic`, or the traffic of float32 if `float_steps` is true of the step. None until
            each group was exchanged.
        """
        traffic = self.traffic if groups is None else self._traffic.of(groups)
        if traffic is None or self.quantization.float_steps is None:
            return traffic
        is_float = bool(self.quantization.float_steps(tf.constant(step, tf.int64)))
        return traffic.as_float32() if is_float else traffic

    @property
    def wire_choices(self) -> list[str]:
        """One line for each choice of "auto", with the reason: first the choice of `grad_bits`.

        Then one line per measured exchange: models, and groups of variables that are exchanged in
        turn, may use different wires.
        """
        mode = [self._mode_choice.reason] if self._mode_choice else []
        return mode + self._wire_choice.reasons

    @property
    def gradient_statistics(self) -> Any:
        """`{variable path: GradientStatistics}` last recorded; empty before the first record.

        Covers variables with ternary gradients, with the codes of this process's first replica.
        """
        return self._recorder.latest

    def check_context(self, paths: Sequence[str]) -> None:
        """Raises ValueError if XLA compiles the exchange or `quantize_logits=False` has no logits.

        Args:
            paths: paths of all variables of the optimizer, searched beside those of
                `note_variable`.
        """
        if not self._has_logits:
            self.quantization.check_logits(paths)
        if private.merges_in_xla_context():
            raise ValueError(_XLA)

    def note_variable(self, path: str) -> None:
        """Notes a variable that another optimizer, or no optimizer, may train."""
        self._has_logits = self._has_logits or self.quantization.is_of_logits(path)

    def check_model(self, is_compiled: bool, paths: Sequence[str] | None) -> None:
        """Does the checks of `check_context` before a step of a model is traced.

        Args:
            is_compiled: True if XLA will compile the whole step.
            paths: paths of all variables of the model, also frozen ones; None before these exist.
        """
        if is_compiled:
            raise ValueError(_XLA)
        if paths is not None:
            self.quantization.check_logits(paths)
            for path in paths:
                self.note_variable(path)

    def is_float_step(self, step: Any) -> Any:
        """Returns `float_steps` of a step as a bool scalar tensor, or None without the option."""
        if self.quantization.float_steps is None:
            return None
        return tf.convert_to_tensor(
            tf.function(self.quantization.float_steps)(tf.cast(step, tf.int64)), tf.bool
        )

    def as_exchanged(self, gradients: Sequence[Any]) -> list[Any]:
        """Converts a replica's gradients for the exchange, see `sparse_as_dense`."""
        if self.options.sparse_as_dense is not True:
            return list(gradients)
        return [as_dense(gradient, gradient.shape) for gradient in gradients]

    def symbol_positions(self, gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
        """Returns the positions of a replica's gradients of symbols, see `exchange.symbols`.

        There are none if the gradients are changes of weights, which an optimizer made: its steps
        for rare symbols are as long as for others.

        Args:
            gradients: list of T tensors or `tf.IndexedSlices`.
            paths: T variable paths.
        """
        return [] if gradients_are_changes() else symbol_positions(gradients, paths)

    def choose_mode(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        paths: Sequence[str],
        finer: Mapping[int, int] | None = None,
    ) -> None:
        """Chooses bits and wire for `grad_bits="auto"` on all processes, before `local_scales`.

        Args:
            strategy: the replicas' strategy, in cross-replica context.
            gradients: list of T gradients of one replica.
            paths: T variable paths.
            finer: as in `local_scales`.

        Raises:
            ValueError: gradients travel as rows, whose number is not known.
        """
        if not self.options.chooses_mode:
            return
        rounded = self.quantization.ternary_positions(gradients, paths)
        rows = self.quantization.row_positions(gradients, paths)
        rows = rows if self.options.sparse_as_dense == "auto" else []
        if not rounded + rows:
            return
        self._compare_models(strategy, gradients, rounded + rows)
        context = exchange.ReductionContext.of(strategy)
        check(
            not rows or context.processes is None,
            "sparse_as_dense",
            f'must be True or False with grad_bits="{AUTO}", because the number of rows that'
            f" {', '.join(paths[i] for i in rows)} would send differs by step",
            self.options.sparse_as_dense,
        )
        job = Job.of(context, self.quantization, gradients, paths, finer)
        self._mode_choice = choice = quickest_mode(context.processes, job)
        self.options = dataclasses.replace(
            self.options,
            quantization=dataclasses.replace(self.quantization, grad_bits=choice.mode.grad_bits),
            chooses_mode=False,
            wire=choice.mode.wire,
        )
        self._wire_choice = WireChoice(self.options.wire, self.quantization, choice.link)
        if context.first_replica == 0:
            tell(choice.reason)

    def local_scales(
        self,
        gradients: Sequence[Any],
        paths: Sequence[Any],
        num_replicas: int,
        finer: Mapping[int, int] | None = None,
    ) -> LocalScales:
        """Returns the scales of one replica's gradients for `reduce_gradients`.

        Args:
            gradients: list of T tensors or `tf.IndexedSlices`.
            paths: T variable paths.
            num_replicas: number of replicas of all processes.
            finer: least bits of the codes of some gradients, by position: of those of
                `symbol_positions`, or of all if noise harms their optimizer's steps.

        Returns:
            `LocalScales`, with times if `telemetry_freq` is not 0.
        """
        scales, times = [], []
        for positions, quantization in batches(self.quantization, gradients, paths, finer):
            tensors = [gradients[i] for i in positions]
            if self.telemetry.freq:
                # Overlaps with the computation of other gradients.
                time, _ = private.stamped(tensors)
                times.append(time)
            if gradients_are_of_one_size():
                quantization = quantization.of_one_size
            scales.append(quantization.local_scales(tensors, num_replicas))
        return LocalScales(scales, times)

    def reduce_gradients(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        local_scales: LocalScales,
        paths: Sequence[Any],
        indices: Sequence[int],
        step: Any,
        finer: Mapping[int, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Sums the gradients of all replicas, in cross-replica context.

        Args:
            strategy: the replicas' strategy.
            gradients: T values, each with one gradient a local replica.
            local_scales: results of `local_scales`, one a local replica.
            paths: T variable paths.
            indices: T positions among the optimizer's variables; they select the random bits.
            step: the optimizer's step, one scalar integer tensor a local replica.
            finer: as in `local_scales`.

        Returns:
            T values with the sum on each local device, in the gradients' dtypes; and T values with
            the variance that rounding added, see `exchange.Bucket.noise`, or None for gradients
            that are never rounded, or not rotated.
        """
        how = paths, indices, step, finer, self.options.sparse_as_dense == "auto"
        plan = Plan.of(strategy, self.quantization, gradients, local_scales, *how)
        self._compare_models(strategy, plan.first, plan.rounded + plan.rows)
        wire = self._wire_choice.wire(plan.context, plan.job)
        trial = None
        if isinstance(wire, WireTrial):
            trial, wire = wire, wire.wires[0]
        plan = plan.by(wire)
        sums: dict[int, Any] = _reduce_exactly(plan, plan.sparse)
        plan, of_rows, noise_of_rows = self._reduce_rows(plan)
        if self.quantization.float_steps is None or not plan.buckets:
            of_dense, noise = self._reduce_rounded(plan, trial)
        else:
            of_dense, noise = tf.cond(
                self.is_float_step(plan.step),
                lambda: self._reduce_dense(plan.as_floats()),
                lambda: self._reduce_rounded(plan, trial),
            )
        sums |= of_rows | of_dense
        noise = noise | noise_of_rows
        for i, gradient in enumerate(gradients):
            if private.counts_once(gradient, plan.context.num_local, plan.context.processes):
                sums[i] = plan.local(i)
                noise.pop(i, None)
        every = range(len(gradients))
        return (
            [private.mirrored(sums[i]) for i in every],
            [private.mirrored(noise[i]) if i in noise else None for i in every],
        )

    def _compare_models(self, strategy, gradients, rounded):
        told = self.quantization.told_float_steps
        handshake.compare_models(strategy, gradients, sorted(rounded), told)

    def _reduce_rows(self, plan):
        """Sums rounded rows; returns the plan with their bytes, sums and noise."""
        if not plan.rows:
            return plan, {}, {}

        def rounded():
            return sparse_rows.reduce_tables(plan.tables(self.options.wire))

        def floats():
            exact = _reduce_exactly(plan, plan.rows)
            parts = [(exact[i][0].indices, exact[i][0].values) for i in plan.rows]
            return parts, plan.no_noise(plan.rows), plan.float_row_bytes

        if self.quantization.float_steps is None:
            parts, noise, received = rounded()
        else:
            parts, noise, received = tf.cond(self.is_float_step(plan.step), floats, rounded)
        sums = {}
        for i, (positions, values) in zip(plan.rows, parts, strict=True):
            slices = tf.IndexedSlices(values, positions, plan.first[i].dense_shape)
            sums[i] = plan.context.on_all_devices(slices)
        noise = dict(zip(plan.rows, map(plan.context.on_all_devices, noise), strict=True))
        return plan.with_row_bytes(received), sums, noise

    def _reduce_rounded(self, plan, trial):
        """Sums the dense gradients by the plan's wire, or by the next wire of a trial."""
        if trial is None:
            return self._reduce_dense(plan)
        return trial.exchange(lambda wire: self._reduce_dense(plan.by(wire), trial.observer()))

    def _reduce_dense(self, plan, *others):
        """Sums a plan's dense gradients; returns sums and noise by position."""
        observer = Observers([*others, *(each.observer(plan) for each in self._observed_by)])
        sums, noise, words = {}, {}, []
        if plan.is_float and self.quantization.rotate:
            rounded = self.quantization.ternary_positions(plan.first, plan.paths)
            zeros = map(plan.context.on_all_devices, plan.no_noise(rounded))
            noise = dict(zip(rounded, zeros, strict=True))
        if plan.floats:
            observer.floats_ready([plan.local(i) for i in plan.floats])
            of_floats = _reduce_exactly(plan, plan.floats)
            sums = dict(zip(of_floats, observer.floats_reduced([*of_floats.values()]), strict=True))
        for number, (positions, _) in enumerate(plan.buckets):
            with tf.name_scope(f"bucket_{number}"):
                bucket = observer.bucket_ready(plan.bucket(number))
                bucket = observer.scales_shared(bucket.with_shared_scales())
                reduced, received, of_bucket = exchange.reduce_bucket(bucket, plan.wire)
                reduced = observer.bucket_reduced(bucket, reduced)
            sums |= dict(zip(positions, reduced, strict=True))
            for i, of_blocks in zip(positions, of_bucket or (), strict=False):
                noise[i] = plan.context.on_all_devices(of_blocks)
            words += [received] if tf.is_tensor(received) else []
        observer.done(sums, words)
        return sums, noise


def _reduce_exactly(plan, positions):
    """Sums as stock TensorFlow does: `{position: one tensor per device}`."""
    if not positions:
        return {}
    pairs = [(plan.gradients[i], plan.gradients[i]) for i in positions]
    reduced = plan.strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
    count = plan.context.num_local
    tensors = [list(private.local_tensors(value, count)) for value in reduced]
    return dict(zip(positions, tensors, strict=True))
