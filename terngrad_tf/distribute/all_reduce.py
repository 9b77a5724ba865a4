"""The cross-device op: packed codes for gradients, stock TensorFlow for everything else."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.arguments import check, is_integer
from terngrad_tf.distribute import private
from terngrad_tf.distribute.consistency import handshake
from terngrad_tf.distribute.exchange import buckets as exchange
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, Traffic, float32_traffic
from terngrad_tf.distribute.steps.contexts import gradients_are_of_one_size
from terngrad_tf.distribute.telemetry import last_step, statistics, stragglers
from terngrad_tf.distribute.telemetry.measurements import Measurements
from terngrad_tf.distribute.telemetry.stopwatch import Job
from terngrad_tf.distribute.wire_selection.wire_choice import WireChoice
from terngrad_tf.distribute.wire_selection.wire_trial import Timing, WireTrial

_XLA = (
    "`jit_compile=True` must not be combined with TernaryAllReduce: TensorFlow would drop the op"
    " from a compiled step. Compile the model with `jit_compile=False`."
)


class TernaryAllReduce(private.ExactCrossDeviceOps):
    """Sums gradients over replicas after rounding each to `{-1, 0, 1}` times a shared scale.

    Every replica k rotates its gradient by blocks and rounds the result, r_k. Packed words carry
    the codes; all replicas receive the same sum and rotate it back:

        s   = c * max_k rms(r_k)                                one scale per block
        t_k = floor(clip(f_k * r_k / s, -1, 1) * L + u_k)       u_k uniform in [0, 1)
        sum_k r_k ~ s / (a * L) * sum_k t_k

    Codes are whole numbers from -L to L, ternary ones with L = 1; c, a and f_k follow, see
    `terngrad_tf.ternary.rotation`. `rotate=False` selects the rule of TernGrad's paper:

        s   = max_k min(clip_factor * std(g_k), max|g_k|)       one scale per tensor
        t_k = floor(clip(g_k / s, -1, 1) * L + u_k)
        sum_k g_k ~ s / L * sum_k t_k

    Keras scales each replica's loss by 1/N, so the sum is the mean of the replicas' gradients. Only
    gradients are rounded, recognized when Keras optimizers reduce them. Metrics, losses,
    synchronized batch-norm, integers and, by default, `IndexedSlices` are reduced exactly as by the
    strategy's stock op. If a replica's gradient holds a NaN or Inf, the reduced tensor is NaN.

    The random bits depend on `seed`, the optimizer's `iterations`, the variable's position among
    the optimizer's variables and the element only, so a run that resumes rounds as if it had not
    stopped.

    Example:
    >>> strategy = tf.distribute.MirroredStrategy(cross_device_ops=TernaryAllReduce())

    Args:
        grad_bits: bits of a gradient's element, see `Quantization`. Default 1, ternary.
        quantization: `Quantization`, the full rule of rounding, instead of `grad_bits`. Default
            `Quantization()`.
        wire: "allgather", "alltoall", "allreduce", "sparse", "bidirectional",
            "sparse_bidirectional" or "auto"; see `terngrad_tf.distribute.exchange.wires`. "auto" is
            the lossless one of known size with the fewest bytes, or between processes another
            lossless one, with the same bits, that should be faster on their measured links;
            `wire_choices` shows the choice. Default "auto".
        sparse_as_dense: True to convert `IndexedSlices`, the gradients of embeddings, to dense
            tensors before the exchange, so that they are rounded, too. Otherwise rows travel as
            floats, once per read by a replica, which may be most of the traffic of a language
            model. Optimizers that square gradients then train as with a dense layer, since Keras
            squares each row of `IndexedSlices` separately. Default False.
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
        grad_bits: int | None = None,
        quantization: Quantization | None = None,
        wire: str = "auto",
        sparse_as_dense: bool = False,
        telemetry_freq: int = 0,
        statistics_freq: int = 0,
    ) -> None:
        super().__init__()
        check(wire in wires.WIRES, "wire", f"must be one of {wires.WIRES}", wire)
        self.quantization = _quantization(grad_bits, quantization, wire)
        is_bool = isinstance(sparse_as_dense, bool)
        check(is_bool, "sparse_as_dense", "must be a bool", sparse_as_dense)
        check(
            is_integer(statistics_freq, 0),
            "statistics_freq",
            "must be a positive integer or 0 (never)",
            statistics_freq,
        )
        budget = self.quantization.bits_per_element
        check(
            budget is None or wire in ("auto", *wires.STREAMS),
            "wire",
            f"must be one of {('auto', *wires.STREAMS)} with bits_per_element={budget}",
            wire,
        )
        levels = self.quantization.levels
        check(
            levels == 1 or wire not in wires.STREAMS,
            "wire",
            f"must be none of {wires.STREAMS}, which are for ternary gradients, with"
            f" grad_bits={self.quantization.grad_bits}",
            wire,
        )
        check(
            not self.quantization.rotate or wire not in wires.STREAMS,
            "wire",
            f"must be none of {wires.STREAMS}, which live from codes that are 0, with rotate=True;"
            " `Quantization(rotate=False)` takes it",
            wire,
        )
        # Options that all processes must share, besides the quantization. Statistics are local.
        self.shared_options = {
            "wire": wire,
            "sparse_as_dense": sparse_as_dense,
            "telemetry_freq": telemetry_freq,
        }
        self.wire = wire
        self._wire_choice = WireChoice(wire, self.quantization)
        self.sparse_as_dense = sparse_as_dense
        self._recorder = statistics.Recorder(statistics_freq)
        self.telemetry = Measurements(telemetry_freq)
        self._has_logits = False
        self._last_step = last_step.LastStep()
        self._traffic_of: dict[tuple[int, ...], last_step.LastTraffic] = {}
        private.install_patches()

    @property
    def traffic(self) -> Traffic | None:
        """`Traffic` of the last step that reduced gradients; None before the first one.

        Sparse gradients count with the rows of this process's replicas in that step.
        """
        latest = self._last_step.latest
        return None if latest is None else self._traffic_of[latest[0]].latest

    def traffic_of(
        self, step: int, groups: Sequence[Sequence[int]] | None = None
    ) -> Traffic | None:
        """Returns the `Traffic` of the optimizer's next step after `step` steps.

        Args:
            step: integer.
            groups: lists of positions among the optimizer's variables; each list is exchanged in a
                separate step. The result is then the sum over these steps. Default: all variables
                are exchanged in each step.

        Returns:
            `traffic`, or the traffic of float32 if `float_steps` is true of the step. None until
            each group was exchanged.
        """
        if groups is None:
            traffic = self.traffic
        else:
            known = [self._traffic_of.get(tuple(group)) for group in groups]
            parts = [last.latest for last in known if last is not None]
            parts = [part for part in parts if part is not None]
            traffic = functools.reduce(operator.add, parts) if len(parts) == len(known) else None
        if traffic is None or self.quantization.float_steps is None:
            return traffic
        is_float = bool(self.quantization.float_steps(tf.constant(step, tf.int64)))
        return traffic.as_float32() if is_float else traffic

    @property
    def wire_choices(self) -> list[str]:
        """One line for each exchange for which "auto" measured wires: its choice and the reason.

        Models, and groups of variables that are exchanged in turn, may use different wires.
        """
        return self._wire_choice.reasons

    @property
    def gradient_statistics(self) -> Any:
        """`{variable path: GradientStatistics}` last recorded; empty before the first record.

        Holds, for each variable whose gradient is ternary, the shared scale and the counts of the
        codes of this process's first replica.
        """
        return self._recorder.latest

    def check_context(self, paths: Sequence[str]) -> None:
        """Raises ValueError if the traced step cannot follow the options.

        This is the case if XLA compiles the step, or if `quantize_logits=False` finds no logits
        among `paths` and the variables noted by `note_variable`.

        Args:
            paths: paths of all variables of the optimizer.
        """
        if not self._has_logits:
            self.quantization.check_logits(paths)
        if private.in_xla_context():
            raise ValueError(_XLA)

    def note_variable(self, path: str) -> None:
        """Notes a variable that another optimizer, or no optimizer, may train."""
        self._has_logits = self._has_logits or self.quantization.is_of_logits(path)

    def check_model(self, is_compiled: bool, paths: Sequence[str] | None) -> None:
        """Does the checks of `check_context` before a step of a model is traced.

        Args:
            is_compiled: True if XLA will compile the step.
            paths: paths of all variables of the model, including frozen ones; None before these
                are created.
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
        """Converts a replica's gradients for the exchange, see `sparse_as_dense`.

        Args:
            gradients: list of tensors or `tf.IndexedSlices`.
        """
        if not self.sparse_as_dense:
            return list(gradients)
        return [
            gradient
            if _is_dense(gradient)
            else tf.ensure_shape(tf.convert_to_tensor(gradient), gradient.shape)
            for gradient in gradients
        ]

    def local_scales(
        self, gradients: Sequence[Any], paths: Sequence[Any], num_replicas: int
    ) -> list[tf.Tensor]:
        """Returns the scales of one replica's gradients for `reduce_gradients`.

        Args:
            gradients: list of T tensors or `tf.IndexedSlices`.
            paths: T variable paths, as in `keras.Variable.path`.
            num_replicas: number of replicas of all processes.

        Returns:
            List of float32 tensors, one per bucket, with an element for each of its gradients. If
            `telemetry_freq` is not 0, a float64 scalar tensor per bucket follows: the time when the
            gradients existed.
        """
        quantization, scales, starts = self.quantization, [], []
        if gradients_are_of_one_size():
            quantization = quantization.of_one_size
        for bucket in self._buckets(gradients, paths):
            tensors = [gradients[i] for i in bucket]
            if self.telemetry.freq:
                # Scales of the first gradients are computed while other gradients still are.
                start, _ = private.stamped(tensors)
                starts.append(start)
            scales.append(quantization.local_scales(tensors, num_replicas))
        return scales + starts

    @stragglers.timed
    def reduce_gradients(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[Any],
        local_scales: tf.Tensor,
        paths: Sequence[Any],
        indices: Sequence[int],
        step: Any,
    ) -> tuple[list[Any], list[Any]]:
        """Sums the gradients of all replicas. Called in cross-replica context.

        Args:
            strategy: the strategy whose replicas computed the gradients.
            gradients: list of T values, each with one gradient a local replica.
            local_scales: the result of `local_scales`, values with one tensor a local replica.
            paths: T variable paths, as in `keras.Variable.path`.
            indices: T positions among the optimizer's variables; they select the random bits.
            step: value with one scalar integer tensor a local replica, the optimizer's step.

        Returns:
            List of T values with the sum on each local device, in the gradients' dtypes; and a list
            of T values with the variance that rounding added, see `exchange.Bucket.noise`, or None
            for gradients that are never rounded, or not rotated.
        """
        first = [private.local_tensors(gradient)[0] for gradient in gradients]
        sparse = [i for i, gradient in enumerate(first) if not _is_dense(gradient)]
        dense = [i for i, gradient in enumerate(first) if _is_dense(gradient)]
        buckets = self._buckets(first, paths)
        ternary_positions = sorted(sum(buckets, []))
        handshake.compare_models(strategy, first, ternary_positions)
        exact = [i for i in dense if i not in set(ternary_positions)]
        context = exchange.ReductionContext.of(strategy)
        of_replicas = functools.partial(private.local_tensors, count=context.num_local)
        own = sum(_num_bytes(slices) for i in sparse for slices in of_replicas(gradients[i]))
        own //= 1 if context.processes else context.num_local
        first_step = private.local_tensors(step)[0]
        job = Job(
            context.num_members,
            context.num_local if context.processes else 1,
            tuple(tuple(_num_elements(first[i]) for i in bucket) for bucket in buckets),
            tuple(_num_elements(first[i]) for i in exact),
            self.quantization.levels,
            bool(self.quantization.rotate),
        )
        chosen = self._wire_choice.wire(context, job)
        trial = chosen if isinstance(chosen, WireTrial) else None

        def traffic_by(wire):
            return sum(
                (context.wire(wire, sizes, self.quantization).traffic for sizes in job.buckets),
                start=float32_traffic(sum(job.floats), context.num_members),
            )

        variables = tuple(indices)
        traffic = self._traffic_of.setdefault(variables, last_step.LastTraffic())
        dense_traffic = traffic_by(trial.wires[0] if trial else chosen)
        traffic.record(dense_traffic, own)
        self._last_step.record(variables, 0)
        scales_of, starts = local_scales[: len(buckets)], local_scales[len(buckets) :]

        def reduce_exactly(watch, positions):
            lap = watch.lap([of_replicas(gradients[i]) for i in positions])
            results = _reduce_exactly(strategy, gradients, positions)
            return dict(zip(results, lap.end(results.values()), strict=True))

        def reduce_float():
            watch = self.telemetry.watch(context, job)
            results = reduce_exactly(watch, dense)
            watch.record(first_step, dense_traffic.as_float32(), own)
            positions = ternary_positions if self.quantization.rotate else []
            return results, {i: context.on_all_devices(_no_noise(first[i])) for i in positions}

        def reduce_ternary():
            return trial.exchange(reduce_by) if trial else reduce_by(chosen)

        def reduce_by(wire):
            dense_traffic = traffic_by(wire)
            watch = self.telemetry.watch(context, job)
            results, noise = reduce_exactly(watch, exact) if exact else {}, {}
            words, timing = [], Timing(trial) if trial else None
            shared_scales = (timing or exchange.ReductionContext).shared_scales
            for number, (positions, scales) in enumerate(zip(buckets, scales_of, strict=True)):
                with tf.name_scope(f"bucket_{number}"):
                    local = [of_replicas(gradients[i]) for i in positions]
                    lap = watch.lap(of_replicas(scales), starts[number : number + 1])
                    brought = list(lap.brought)
                    rotate = self.quantization.rotate
                    bucket = exchange.Bucket(
                        context=lap.context,
                        quantization=self.quantization,
                        gradients=list(zip(*local, strict=True)),
                        scales=shared_scales(
                            lap.context, [own[0] for own in brought] if rotate else brought
                        ),
                        measured=brought if rotate else None,
                        indices=[indices[i] for i in positions],
                        step=first_step,
                    )
                    self._recorder.record([paths[i] for i in positions], bucket)
                    reduced, received, of_bucket = exchange.reduce_bucket(bucket, wire)
                    reduced = lap.end(reduced)
                    watch.compare(bucket, reduced)
                results |= dict(zip(positions, reduced, strict=True))
                for i, of_blocks in zip(positions, of_bucket or (), strict=False):
                    noise[i] = context.on_all_devices(of_blocks)
                words += [received] if tf.is_tensor(received) else []
            if timing:
                timing.end(results)
                traffic.record(dense_traffic, own)
            if words:
                traffic.record_streams(dense_traffic, WORD_BYTES * tf.add_n(words))
            watch.record(first_step, dense_traffic, own, words)
            return results, noise

        results: dict[int, Any] = _reduce_exactly(strategy, gradients, sparse)
        if self.quantization.float_steps is None or not buckets:
            reduced, noise = reduce_ternary()
        else:
            is_float = self.is_float_step(first_step)
            reduced, noise = tf.cond(is_float, reduce_float, reduce_ternary)
        results |= reduced
        for i, gradient in enumerate(gradients):
            if private.counts_once(gradient, context.num_local, context.processes):
                results[i] = of_replicas(gradient)
                noise.pop(i, None)
        every = range(len(gradients))
        return (
            [private.mirrored(results[i]) for i in every],
            [private.mirrored(noise[i]) if i in noise else None for i in every],
        )

    def _buckets(self, gradients, paths):
        """Returns the positions of the gradients to round, bucket by bucket."""
        positions = self.quantization.ternary_positions(gradients, paths)
        sizes = [_num_elements(gradients[i]) for i in positions]
        return [[positions[i] for i in bucket] for bucket in exchange.buckets(sizes)]


def _quantization(grad_bits, quantization, wire):
    """Returns the `Quantization` that a user's arguments describe."""
    if quantization is None:
        given = {} if grad_bits is None else {"grad_bits": grad_bits}
        # Rotated codes have too few zeros for streams.
        return Quantization(rotate=False if wire in wires.STREAMS else None, **given)
    is_one = isinstance(quantization, Quantization)
    check(is_one, "quantization", "must be a `Quantization`", quantization)
    rule = "must not be given together with `quantization`, which takes it"
    check(grad_bits is None, "grad_bits", rule, grad_bits)
    return quantization


def _reduce_exactly(strategy, gradients, positions):
    """Sums as stock TensorFlow does. Returns `{position: list of one tensor per device}`."""
    if not positions:
        return {}
    pairs = [(gradients[i], gradients[i]) for i in positions]
    reduced = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
    count = len(strategy.extended.worker_devices)
    return {
        i: list(private.local_tensors(value, count))
        for i, value in zip(positions, reduced, strict=True)
    }


def _is_dense(tensor):
    return not isinstance(tensor, tf.IndexedSlices)


def _num_elements(tensor):
    return tensor.shape.num_elements() or 0


def _no_noise(tensor):
    return tf.zeros([len(ternary.block_sizes(_num_elements(tensor)))])


def _num_bytes(slices):
    """Returns the bytes of the rows and positions of `tf.IndexedSlices`, an int64 scalar tensor."""
    return sum(
        tf.size(part, tf.int64) * part.dtype.size for part in (slices.values, slices.indices)
    )
