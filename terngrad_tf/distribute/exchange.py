"""One bucket of gradients from local tensors to their sum over all workers."""

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import private, wire as wires

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


def reduce_bucket(group, gradients, indices, steps, options):
    """Rounds, exchanges and sums the tensors of one bucket.

    Args:
        group: `Group`.
        gradients: list of T tuples with the tensor of each local replica.
        indices: T integers that select the random bits of each tensor.
        steps: the step, a scalar integer tensor a local replica.
        options: object with the attributes of `TernaryAllReduce`.

    Returns:
        Tuple of a list of T mirrored values and the `Traffic`.
    """
    sizes = tuple(tensors[0].shape.num_elements() for tensors in gradients)
    layout = wires.Layout(
        sizes,
        num_hosts=group.num_members,
        num_local=group.num_local if group.hosts else 1,
    )
    wire = layout.choose(options.wire)
    base = layout.total_base if wire == "lanes" else 3
    by_replica = list(zip(*gradients, strict=True))
    scales = _shared_scales(group, by_replica, options.clip_factor)
    words = []
    for replica, (device, tensors) in enumerate(zip(group.encode_devices, by_replica, strict=True)):
        with tf.device(device):
            words.append(
                ternary.encode(
                    list(tensors),
                    scales,
                    seed=options.seed,
                    step=steps[replica],
                    worker=group.first_worker + replica,
                    num_workers=group.num_workers,
                    rounding=options.rounding,
                    base=base,
                    tensors=indices,
                )
            )
    with tf.device(group.devices[0]):
        sums = _sum(group, layout, wire, tf.stack(words), scales, gradients, steps[0], options)
    results = []
    for total in sums:
        copies = []
        for device in group.devices:
            with tf.device(device):
                copies.append(tf.identity(total))
        results.append(private.mirrored(copies))
    return results, layout.traffic(wire)


def _shared_scales(group, by_replica, clip_factor):
    local = []
    for device, tensors in zip(group.encode_devices, by_replica, strict=True):
        with tf.device(device):
            local.append(ternary.local_scales(list(tensors), clip_factor))
    with tf.device(group.devices[0]):
        scales = tf.reduce_max(tf.stack(local), axis=0)
        return group.hosts.all_reduce_max(scales) if group.hosts else scales


def _sum(group, layout, wire, words, scales, gradients, step, options):
    """Words `[local workers, W]` of this process to the list of T sums over all workers."""
    tensors = {
        "shapes": [local[0].shape for local in gradients],
        "dtypes": [local[0].dtype for local in gradients],
    }
    num_workers = layout.num_workers
    if wire == "lanes":
        words = tf.reduce_sum(words, axis=0)
        if group.hosts:
            words = group.hosts.all_reduce_sum(words)
        return ternary.decode(
            words[tf.newaxis], scales, **tensors, base=layout.total_base, total_bias=num_workers
        )
    if wire == "both_ways":
        chunk = layout.chunk_words(layout.num_hosts)
        rows = _chunks(words, layout.num_hosts, chunk)
        words = (_round_on_hosts if group.hosts else _round_here)(
            group, layout, rows, step, options.seed
        )
        words = tf.reshape(words, [1, -1])[:, : layout.trit_words]
        return ternary.decode(words, num_workers * scales, **tensors, total_bias=1)
    if not group.hosts:
        return ternary.decode(words, scales, **tensors, total_bias=num_workers)
    if wire == "allgather" and layout.num_local == 1:
        words = group.hosts.all_gather(words[0])
        return ternary.decode(words, scales, **tensors, total_bias=num_workers)
    num_chunks = 1 if wire == "allgather" else layout.num_hosts
    chunk = layout.chunk_words(num_chunks)
    sent = _local_sums(layout, _chunks(words, num_chunks, chunk))
    if wire == "allgather":
        received = group.hosts.all_gather(sent[0])
    else:
        received = group.hosts.all_to_all(sent)
    sums = ternary.sum_to_words(received, layout.local_base, base_out=layout.total_base)
    sums = sums[tf.newaxis] if wire == "allgather" else group.hosts.all_gather(sums)
    return ternary.decode_sums(
        sums,
        scales,
        **tensors,
        chunk_words=chunk,
        base_out=layout.total_base,
        total_bias=num_workers,
    )


def _chunks(words, num_chunks, chunk_words):
    """`[workers, W]` -> `[num_chunks, workers, chunk_words]`, padded with zeros."""
    padding = num_chunks * chunk_words - words.shape[1]
    words = tf.pad(words, [[0, 0], [0, padding]])
    return tf.transpose(tf.reshape(words, [-1, num_chunks, chunk_words]), [1, 0, 2])


def _local_sums(layout, chunks):
    """Adds the codes of the local workers: one row of words in `local_base` a chunk."""
    if layout.num_local == 1:
        return chunks[:, 0]
    return tf.stack(
        [
            ternary.sum_to_words(chunk, 3, base_out=layout.local_base)
            for chunk in tf.unstack(chunks)
        ]
    )


def _round_on_hosts(group, layout, chunks, step, seed):
    received = group.hosts.all_to_all(_local_sums(layout, chunks))
    return group.hosts.all_gather(
        ternary.ternarize_sums(
            received,
            layout.num_workers,
            seed=seed,
            step=step,
            stream=group.hosts.rank,
            base=layout.local_base,
        )
    )


def _round_here(group, layout, chunks, step, seed):
    """What the owners of the chunks would do if every virtual worker were a host."""
    return tf.stack(
        [
            ternary.ternarize_sums(
                chunk, layout.num_workers, seed=seed, step=step, stream=owner
            )
            for owner, chunk in enumerate(tf.unstack(chunks))
        ]
    )
