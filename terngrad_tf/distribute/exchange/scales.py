"""Scales that all replicas share before they round.

Replicas round by the largest of their scales; replicas with smaller ones add less noise. Few scales
travel to all members. Of many, each member receives a chunk, and sends its largest scales and noise
to all (`traffic.scale_bytes`).
"""

import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import chunk_of_scales, scales_travel_to_all


class SharedScales(typing.NamedTuple):
    """Scales after members shared them.

    Attributes:
        largest: float32 `[T]`, over all replicas.
        noise: float32 `[T]`, the variance that rounding adds to sums, in units of the squared
            scale; None without rotation.
        told: the largest elements over all processes.
    """

    largest: tf.Tensor
    noise: tf.Tensor | None
    told: tf.Tensor | None


def share_scales(
    context: Any, quantization: Quantization, local_scales: Sequence[Any], told: Any = None
) -> SharedScales:
    """Exchanges scales with the other members.

    Args:
        local_scales: float32 `[T]` of each local replica.
        told: float32 vector that travels beside the scales, or None.
    """
    processes = context.processes
    with tf.device(context.devices[0]):
        own = tf.stack(local_scales)
        if not processes:
            return _of_members(own, 0, context, quantization)
        own = tf.reduce_max(own, axis=0)
        num_told = 0 if told is None else told.shape[0]
        told = tf.zeros([0]) if told is None else told
        if scales_travel_to_all(own.shape[0], processes.size):
            messages = processes.all_gather(tf.concat([own, told], 0))
            return _of_members(messages, num_told, context, quantization)
        return _by_chunks(own, told, context, quantization)


def _of_members(messages, num_told, context, quantization):
    """Returns the `SharedScales` of messages `[members, T + num_told]`."""
    count = messages.shape[1] - num_told
    largest = tf.reduce_max(messages, axis=0)
    scales, noise = largest[:count], None
    if quantization.rotate:
        own = messages[:, :count]
        noise = quantization.noise_of_sums(scales, own, context.num_replicas)
    return SharedScales(scales, noise, largest[count:] if num_told else None)


def _by_chunks(own, told, context, quantization):
    """Shares many scales: member m finds what all members need of chunk m."""
    processes, count, num_told = context.processes, own.shape[0], told.shape[0]
    chunk = chunk_of_scales(count, processes.size)
    chunks = tf.reshape(tf.pad(own, [[0, chunk * processes.size - count]]), [-1, chunk])
    rows = tf.concat([chunks, tf.repeat(told[tf.newaxis], processes.size, axis=0)], 1)
    messages = tf.reshape(processes.all_to_all(rows), [processes.size, chunk + num_told])
    found = _of_members(messages, num_told, context, quantization)
    # `told` arrived from all members.
    parts = [found.largest] if found.noise is None else [found.largest, found.noise]
    gathered = processes.all_gather(tf.concat(parts, 0))
    gathered = tf.reshape(gathered, [processes.size, len(parts), chunk])
    of_all = [tf.reshape(part, [-1])[:count] for part in tf.unstack(gathered, axis=1)]
    return SharedScales(of_all[0], of_all[1] if len(of_all) > 1 else None, found.told)
