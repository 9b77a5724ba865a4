"""One bucket of gradients from local tensors to their sum over all replicas."""

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import wire as wires

# A bucket is sent as soon as its gradients exist, while earlier layers still compute theirs. Large
# enough that the latency of a collective does not count.
BUCKET_ELEMENTS = 4 * 2**20


class ReductionContext:
    """Who takes part: the local devices, and the other processes where there are any."""

    def __init__(self, strategy):
        extended = strategy.extended
        self.devices = extended.worker_devices
        self.num_local = len(self.devices)
        self.num_replicas = strategy.num_replicas_in_sync
        self.processes = getattr(extended, "process_group", None)
        self.first_replica = self.processes.rank * self.num_local if self.processes else 0
        # XLA compiles for each device anew. Logical CPU devices share memory and threads, so what
        # they would all compute is computed, and compiled, on the first.
        self.encode_devices = [
            device if "GPU" in device else self.devices[0] for device in self.devices
        ]

    @property
    def num_members(self):
        """Members of the exchange: processes, or the replicas of a single process."""
        return self.processes.size if self.processes else self.num_replicas


def buckets(sizes, bucket_elements=BUCKET_ELEMENTS):
    """Splits positions 0..len(sizes)-1 into buckets, last layers (first gradients) first.

    Args:
        sizes: elements of each tensor.
        bucket_elements: a bucket is closed when it holds this many.

    Returns:
        List of lists of positions, each position once.
    """
    result, current, total = [], [], 0
    for position in reversed(range(len(sizes))):
        current.append(position)
        total += sizes[position]
        if total >= bucket_elements:
            result.append(current)
            current, total = [], 0
    return result + [current] if current else result


def traffic(context, sizes, wire):
    """`Traffic` of one bucket whose tensors have these numbers of elements."""
    plan = _plan(context, sizes)
    return plan.traffic(plan.choose(wire))


def _plan(context, sizes):
    return wires.ExchangePlan(
        tuple(sizes),
        num_members=context.num_members,
        num_local=context.num_local if context.processes else 1,
    )


def reduce_bucket(context, gradients, local_scales, indices, step, options, record):
    """Rounds, exchanges and sums the tensors of one bucket.

    Args:
        context: `ReductionContext`.
        gradients: list of T tuples with the tensor of each local replica.
        local_scales: `ternary.local_scales` of the T tensors, one vector a local replica.
        indices: T integers that select the random bits of each tensor.
        step: the step, a scalar integer tensor.
        options: object with the attributes of `TernaryAllReduce`.
        record: method `Recorder.record` with the paths given.

    Returns:
        List of T lists with the sum on each local device.
    """
    plan = _plan(context, [tensors[0].shape.num_elements() for tensors in gradients])
    wire = plan.choose(options.wire)
    by_replica = list(zip(*gradients, strict=True))
    with tf.device(context.devices[0]):
        scales = tf.reduce_max(tf.stack(local_scales), axis=0)
        scales = context.processes.all_reduce_max(scales) if context.processes else scales
        record(by_replica[0], scales, indices, step, context, options)
    reduce = _add_words
    if context.processes is None and wire != "bidirectional":
        # Nothing travels, and all lossless wires give this.
        reduce = _add_codes
    sums = reduce(context, plan, wire, by_replica, scales, indices, step, options)
    results = []
    for total in sums:
        copies = {}
        for device in dict.fromkeys(context.devices):
            with tf.device(device):
                copies[device] = tf.identity(total)
        results.append([copies[device] for device in context.devices])
    return results


def _add_codes(context, plan, wire, by_replica, scales, indices, step, options):
    """The sums where all replicas are in this process, without packed words."""
    del plan, wire
    of_devices = []
    for device in dict.fromkeys(context.encode_devices):
        mine = [k for k, d in enumerate(context.encode_devices) if d == device]
        with tf.device(device):
            of_devices.append(
                ternary.sum_codes(
                    [by_replica[k] for k in mine],
                    scales,
                    seed=options.seed,
                    step=step,
                    replicas=mine,
                    num_replicas=context.num_replicas,
                    rounding=options.rounding,
                    tensors=indices,
                )
            )
    finite = tf.math.is_finite(scales)
    scales = tf.unstack(tf.where(finite, scales, tf.constant(float("nan"), tf.float32)))
    with tf.device(context.devices[0]):
        return [
            tf.cast(scale * tf.cast(tf.add_n(sums), tf.float32), gradient.dtype)
            for *sums, scale, gradient in zip(*of_devices, scales, by_replica[0], strict=True)
        ]


def _add_words(context, plan, wire, by_replica, scales, indices, step, options):
    """The sums of packed words, exchanged between processes."""
    words = []
    for replica, (device, tensors) in enumerate(
        zip(context.encode_devices, by_replica, strict=True)
    ):
        with tf.device(device):
            words.append(
                ternary.encode(
                    list(tensors),
                    scales,
                    seed=options.seed,
                    step=step,
                    replica=context.first_replica + replica,
                    num_replicas=context.num_replicas,
                    rounding=options.rounding,
                    base=plan.total_base if wire == "allreduce" else plan.local_base,
                    tensors=indices,
                )
            )
    with tf.device(context.devices[0]):
        return _sum(context, plan, wire, words, scales, by_replica[0], step, options)


def _sum(context, plan, wire, words, scales, gradients, step, options):
    """List of the local replicas' words `[W]` to the list of T sums over all replicas."""
    num_replicas, base = plan.num_replicas, plan.local_base
    shapes = [gradient.shape for gradient in gradients]
    dtypes = [gradient.dtype for gradient in gradients]
    if wire == "bidirectional":
        rounded = _round_again(context, plan, words, step, options.seed)
        return ternary.decode_chunks(
            rounded,
            num_replicas * scales,
            shapes,
            dtypes,
            chunk_words=plan.chunk_words,
            base_in=base,
            base_out=3,
            total_bias=1,
        )
    if wire == "allreduce":
        words, base = context.processes.all_reduce_sum(tf.add_n(words)), plan.total_base
        words = words[tf.newaxis]
    elif wire == "allgather":
        words = context.processes.all_gather(tf.add_n(words))
    else:
        received = context.processes.all_to_all(_chunks(plan, tf.add_n(words)))
        sums = ternary.reduce_chunk(received, base, base_out=plan.total_base)
        return ternary.decode_chunks(
            context.processes.all_gather(sums),
            scales,
            shapes,
            dtypes,
            chunk_words=plan.chunk_words,
            base_in=base,
            base_out=plan.total_base,
            total_bias=num_replicas,
        )
    return ternary.decode(words, scales, shapes, dtypes, base=base, total_bias=num_replicas)


def _chunks(plan, words):
    """`[W]` -> `[processes, chunk_words]`, padded with zeros."""
    padding = plan.num_members * plan.chunk_words - words.shape[0]
    return tf.reshape(tf.pad(words, [[0, padding]]), [plan.num_members, plan.chunk_words])


def _round_again(context, plan, words, step, seed):
    """Second hop of "bidirectional": the owner of each chunk rounds its sums; one row a chunk."""

    def ternarize(received, owner):
        return ternary.requantize_chunk(
            received,
            plan.num_replicas,
            seed=seed,
            step=step,
            stream=owner,
            base=plan.local_base,
        )

    if context.processes:
        received = context.processes.all_to_all(_chunks(plan, tf.add_n(words)))
        return context.processes.all_gather(ternarize(received, context.processes.rank))
    # One process: what every owner would do if each replica were a process.
    chunks = tf.stack([_chunks(plan, w) for w in words], axis=1)
    return tf.stack([ternarize(chunk, owner) for owner, chunk in enumerate(tf.unstack(chunks))])
