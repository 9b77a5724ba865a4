"""One bucket of gradients from local tensors to their sum over all workers."""

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import wire as wires

# A bucket is sent as soon as its gradients exist, while earlier layers still compute theirs. Large
# enough that the latency of a collective does not count.
BUCKET_ELEMENTS = 4 * 2**20


class Group:
    """Who takes part: the local devices, and the other hosts where there are any."""

    def __init__(self, strategy):
        extended = strategy.extended
        self.devices = extended.worker_devices
        self.num_local = len(self.devices)
        self.num_workers = strategy.num_replicas_in_sync
        self.hosts = getattr(extended, "host_group", None)
        self.first_worker = self.hosts.rank * self.num_local if self.hosts else 0
        # XLA compiles for each device anew. Logical CPU devices share memory and threads, so what
        # they would all compute is computed, and compiled, on the first.
        self.encode_devices = [
            device if "GPU" in device else self.devices[0] for device in self.devices
        ]

    @property
    def num_members(self):
        """Members of the exchange: hosts, or the virtual workers of a single host."""
        return self.hosts.size if self.hosts else self.num_workers


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


def traffic(group, sizes, wire):
    """`Traffic` of one bucket whose tensors have these numbers of elements."""
    layout = _layout(group, sizes)
    return layout.traffic(layout.choose(wire))


def _layout(group, sizes):
    return wires.Layout(
        tuple(sizes),
        num_hosts=group.num_members,
        num_local=group.num_local if group.hosts else 1,
    )


def reduce_bucket(group, gradients, local_scales, indices, step, options, record):
    """Rounds, exchanges and sums the tensors of one bucket.

    Args:
        group: `Group`.
        gradients: list of T tuples with the tensor of each local worker.
        local_scales: `ternary.local_scales` of the T tensors, one vector a local worker.
        indices: T integers that select the random bits of each tensor.
        step: the step, a scalar integer tensor.
        options: object with the attributes of `TernaryAllReduce`.
        record: method `Recorder.record` with the paths given.

    Returns:
        List of T lists with the sum on each local device.
    """
    layout = _layout(group, [tensors[0].shape.num_elements() for tensors in gradients])
    wire = layout.choose(options.wire)
    by_worker = list(zip(*gradients, strict=True))
    with tf.device(group.devices[0]):
        scales = tf.reduce_max(tf.stack(local_scales), axis=0)
        scales = group.hosts.all_reduce_max(scales) if group.hosts else scales
        record(by_worker[0], scales, indices, step, group, options)
    reduce = _add_words
    if group.hosts is None and wire != "both_ways":
        # Nothing travels, and all lossless wires give this.
        reduce = _add_codes
    sums = reduce(group, layout, wire, by_worker, scales, indices, step, options)
    results = []
    for total in sums:
        copies = {}
        for device in dict.fromkeys(group.devices):
            with tf.device(device):
                copies[device] = tf.identity(total)
        results.append([copies[device] for device in group.devices])
    return results


def _add_codes(group, layout, wire, by_worker, scales, indices, step, options):
    """The sums where all workers are in this process, without packed words."""
    del layout, wire
    of_devices = []
    for device in dict.fromkeys(group.encode_devices):
        mine = [k for k, d in enumerate(group.encode_devices) if d == device]
        with tf.device(device):
            of_devices.append(
                ternary.sum_codes(
                    [by_worker[k] for k in mine],
                    scales,
                    seed=options.seed,
                    step=step,
                    workers=mine,
                    num_workers=group.num_workers,
                    rounding=options.rounding,
                    tensors=indices,
                )
            )
    finite = tf.math.is_finite(scales)
    scales = tf.unstack(tf.where(finite, scales, tf.constant(float("nan"), tf.float32)))
    with tf.device(group.devices[0]):
        return [
            tf.cast(scale * tf.cast(tf.add_n(sums), tf.float32), gradient.dtype)
            for *sums, scale, gradient in zip(*of_devices, scales, by_worker[0], strict=True)
        ]


def _add_words(group, layout, wire, by_worker, scales, indices, step, options):
    """The sums of packed words, exchanged between hosts."""
    words = []
    for worker, (device, tensors) in enumerate(zip(group.encode_devices, by_worker, strict=True)):
        with tf.device(device):
            words.append(
                ternary.encode(
                    list(tensors),
                    scales,
                    seed=options.seed,
                    step=step,
                    worker=group.first_worker + worker,
                    num_workers=group.num_workers,
                    rounding=options.rounding,
                    base=layout.total_base if wire == "lanes" else layout.local_base,
                    tensors=indices,
                )
            )
    with tf.device(group.devices[0]):
        return _sum(group, layout, wire, words, scales, by_worker[0], step, options)


def _sum(group, layout, wire, words, scales, gradients, step, options):
    """List of the local workers' words `[W]` to the list of T sums over all workers."""
    num_workers, base = layout.num_workers, layout.local_base
    shapes = [gradient.shape for gradient in gradients]
    dtypes = [gradient.dtype for gradient in gradients]
    if wire == "both_ways":
        rounded = _round_again(group, layout, words, step, options.seed)
        return ternary.decode_sums(
            rounded,
            num_workers * scales,
            shapes,
            dtypes,
            chunk_words=layout.chunk_words,
            base_in=base,
            base_out=3,
            total_bias=1,
        )
    if wire == "lanes":
        words, base = group.hosts.all_reduce_sum(tf.add_n(words)), layout.total_base
        words = words[tf.newaxis]
    elif wire == "allgather":
        words = group.hosts.all_gather(tf.add_n(words))
    else:
        received = group.hosts.all_to_all(_chunks(layout, tf.add_n(words)))
        sums = ternary.sum_to_words(received, base, base_out=layout.total_base)
        return ternary.decode_sums(
            group.hosts.all_gather(sums),
            scales,
            shapes,
            dtypes,
            chunk_words=layout.chunk_words,
            base_in=base,
            base_out=layout.total_base,
            total_bias=num_workers,
        )
    return ternary.decode(words, scales, shapes, dtypes, base=base, total_bias=num_workers)


def _chunks(layout, words):
    """`[W]` -> `[hosts, chunk_words]`, padded with zeros."""
    padding = layout.num_hosts * layout.chunk_words - words.shape[0]
    return tf.reshape(tf.pad(words, [[0, padding]]), [layout.num_hosts, layout.chunk_words])


def _round_again(group, layout, words, step, seed):
    """Second hop of "both_ways": the owner of each chunk rounds its sums; one row a chunk."""

    def ternarize(received, owner):
        return ternary.ternarize_sums(
            received,
            layout.num_workers,
            seed=seed,
            step=step,
            stream=owner,
            base=layout.local_base,
        )

    if group.hosts:
        received = group.hosts.all_to_all(_chunks(layout, tf.add_n(words)))
        return group.hosts.all_gather(ternarize(received, group.hosts.rank))
    # One process: what every owner would do if each virtual worker were a host.
    chunks = tf.stack([_chunks(layout, w) for w in words], axis=1)
    return tf.stack([ternarize(chunk, owner) for owner, chunk in enumerate(tf.unstack(chunks))])
