"""One bucket of gradients from local tensors to their sum over all workers."""

import functools

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
    for replica, (device, tensors) in enumerate(zip(group.devices, by_replica, strict=True)):
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
        gathered = tf.stack(words)
        shapes = [tensors[0].shape for tensors in gradients]
        dtypes = [tensors[0].dtype for tensors in gradients]
        run = _exchange_hosts if group.hosts else _exchange_local
        sums = run(
            group,
            layout,
            wire,
            gathered,
            functools.partial(ternary.decode, scales=scales, shapes=shapes, dtypes=dtypes),
            options,
            steps[0],
        )
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
    for device, tensors in zip(group.devices, by_replica, strict=True):
        with tf.device(device):
            local.append(ternary.local_scales(list(tensors), clip_factor))
    with tf.device(group.devices[0]):
        scales = tf.reduce_max(tf.stack(local), axis=0)
        return group.hosts.all_reduce_max(scales) if group.hosts else scales
