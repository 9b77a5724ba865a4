"""Reductions over the replicas of a device first, then over devices and processes."""

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils, distribute_utils, values

from terngrad_tf import ternary
from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.replicas.devices import counts_once, local_tensors, mirrored


class DeviceReductions(LocalReplicas):
    """Reductions of a strategy's `extended`, whose base class has one replica per device."""

    def _reduce_to(self, reduce_op, value, destinations, options):
        def reduce(value):
            if not is_per_replica(value):
                return super(DeviceReductions, self)._reduce_to(
                    reduce_op, value, destinations, options
                )
            return self._reduce_all([value], reduce_op, options)[0]

        return tf.nest.map_structure(reduce, value)

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        return self._reduce_all([value for value, _ in value_destination_pairs], reduce_op, options)

    def _reduce_all(self, per_replica, reduce_op, options):
        if not per_replica:
            return []
        once = [
            counts_once(value, len(self._device_of_replica), self.process_group)
            for value in per_replica
        ]
        if any(once):
            others = [v for v, is_same in zip(per_replica, once, strict=True) if not is_same]
            reduced = iter(self._reduce_all(others, reduce_op, options))
            return [
                value if is_same else next(reduced)
                for value, is_same in zip(per_replica, once, strict=True)
            ]
        sums = [self._sum_by_device(value) for value in per_replica]
        if self.process_group is None and len(self._devices) == 1:
            reduced = [values.Mirrored(local) for local in sums]
        else:
            pairs = [(values.PerReplica(local),) * 2 for local in sums]
            reduced = super()._batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs, options)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            count = self._num_replicas_in_sync
            reduced = [
                values.Mirrored(
                    [
                        cross_device_utils.divide_by_n_tensors_or_indexed_slices(v, count)
                        for v in local_tensors(value)
                    ]
                )
                for value in reduced
            ]
        return [self._to_replicas(value) for value in reduced]

    def _sum_by_device(self, value):
        sums = []
        for index, device in enumerate(self._devices):
            with tf.device(device):
                mine = [
                    v
                    for v, d in zip(
                        local_tensors(value, len(self._device_of_replica)),
                        self._device_of_replica,
                        strict=True,
                    )
                    if d == index
                ]
                sums.append(
                    cross_device_utils.aggregate_tensors_or_indexed_slices(
                        mine, ternary.sum_in_order
                    )
                )
        return sums

    def _to_replicas(self, by_device):
        """Converts a value per device to a value per replica."""
        return mirrored([local_tensors(by_device)[device] for device in self._device_of_replica])

    def _broadcast_to(self, tensor, destinations):
        if isinstance(tensor, float | int) or len(self._devices) == 1:
            return tensor
        copy = cross_device_utils.copy_tensor_or_indexed_slices_to_device
        return self._to_replicas(values.Mirrored([copy(tensor, d) for d in self._devices]))

    def _gather_to_implementation(self, value, destinations, axis, options):
        parts = local_tensors(value)
        _check_gathered([part.shape for part in parts], axis)
        with tf.device(self._devices[0]):
            rows = tf.concat(list(parts), axis)
        if self.process_group is None:
            return rows
        # Only the first device has something to send.
        nothing = tf.gather(rows, tf.zeros([0], tf.int32), axis=axis)
        parts = [rows] + [nothing] * (len(self._devices) - 1)
        return super()._gather_to_implementation(
            values.PerReplica(parts), self._devices[0], axis, options
        )


def _check_gathered(shapes, axis):
    """Raises ValueError if tensors of these shapes cannot be concatenated."""
    known = [shape.as_list() for shape in shapes if shape.rank is not None]
    ranks = {len(shape) for shape in known}
    fits = 0 not in ranks and len(ranks) <= 1
    for dimension in range(max(ranks, default=0)) if fits else ():
        sizes = {shape[dimension] for shape in known} - {None}
        fits &= len(sizes) <= 1 or dimension == axis % len(known[0])
    if not fits:
        raise ValueError(
            "Values can be gathered whose rank is 1 or more and whose shapes differ along `axis`"
            " only (`tf.expand_dims` gives scalars an axis). Received:"
            f" axis={axis}, shapes={known}"
        )


def is_per_replica(value: Any) -> bool:
    """Returns True if a value differs between replicas."""
    return isinstance(value, values.DistributedValues) and not distribute_utils.is_mirrored(value)
