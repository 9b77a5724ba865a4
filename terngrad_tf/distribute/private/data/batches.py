"""Distributed datasets whose batches are split among the replicas of each device."""

import typing
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util import structure as data_structure
from tensorflow.python.distribute import input_lib, values

from terngrad_tf.distribute.private.patches import patch


class ReplicaBatches(input_lib.DistributedDataset):
    """Fetches one batch per device and splits it among the device's replicas.

    The stock class would create one iterator per replica.
    """

    def __init__(
        self,
        input_workers: Any,
        strategy: tf.distribute.Strategy,
        dataset: tf.data.Dataset | None = None,
        **options: Any,
    ):
        for spec in tf.nest.flatten(dataset.element_spec if dataset is not None else ()):
            if not _may_be_batch(spec):
                raise ValueError(
                    "Call `batch` on the dataset: what has no batch axis cannot be split among"
                    f" {strategy.num_replicas_in_sync} replicas. Received:"
                    f" element_spec={dataset.element_spec}"
                )
        super().__init__(input_workers, strategy, dataset, **options)
        # One component per device; the base class counts replicas.
        self._element_spec = _map(
            self._element_spec,
            values.PerReplicaSpec,
            lambda specs: values.PerReplicaSpec(*specs[: len(devices_and_replicas(strategy))]),
        )

    def __iter__(self) -> "_ReplicaIterator":
        return _iterator(self, super().__iter__()._iterators)

    @property
    def element_spec(self) -> Any:
        return _spec_of_replicas(super().element_spec, self._strategy)

    @property
    def _type_spec(self):
        return _ReplicaBatchesSpec(
            self._input_workers,
            self._element_spec,
            self._strategy,
            self._options,
            enable_get_next_as_optional=self._enable_get_next_as_optional,
        )


class _ReplicaBatchesSpec(input_lib.DistributedDatasetSpec):
    @property
    def value_type(self):
        return ReplicaBatches

    def _from_components(self, components):
        (dataset,) = components
        # The base class compares with the spec that it derives.
        spec = input_lib._create_distributed_tensor_spec(self._strategy, dataset.element_spec)
        return ReplicaBatches(
            self._input_workers,
            self._strategy,
            components=components,
            element_spec=spec,
            enable_get_next_as_optional=self._enable_get_next_as_optional,
            options=self._options,
        )


class _ReplicaIterator(input_lib.DistributedIterator):
    def get_next(self, name=None):
        return _batches_of_replicas(super().get_next(name), self._strategy)

    def get_next_as_optional(self):
        of_devices = typing.cast(typing.Any, super().get_next_as_optional())
        return tf.cond(
            of_devices.has_value(),
            lambda: tf.experimental.Optional.from_value(
                _batches_of_replicas(of_devices.get_value(), self._strategy)
            ),
            lambda: tf.experimental.Optional.empty(self.element_spec),
        )

    @property
    def element_spec(self):
        return _spec_of_replicas(super().element_spec, self._strategy)

    @property
    def _type_spec(self):
        return _ReplicaIteratorSpec(
            self._input_workers,
            self._element_spec,
            self._strategy,
            self._options,
            self._cardinality,
            self._enable_get_next_as_optional,
        )


class _ReplicaIteratorSpec(input_lib.DistributedIteratorSpec):
    @property
    def value_type(self):
        return _ReplicaIterator

    def _from_components(self, components):
        return _iterator(self, components)


def _iterator(source, components):
    """Returns the iterator described by a dataset or by an iterator's spec."""
    return _ReplicaIterator(
        input_workers=source._input_workers,
        components=components,
        element_spec=source._element_spec,
        strategy=source._strategy,
        cardinality=source._cardinality,
        enable_get_next_as_optional=source._enable_get_next_as_optional,
        options=source._options,
    )


def devices_and_replicas(strategy: tf.distribute.Strategy) -> list[tuple[str, list[int]]]:
    """Returns each local device with the positions of its replicas."""
    extended = strategy.extended
    of_device = {}
    for replica, device in enumerate(extended.worker_devices):
        of_device.setdefault(device, []).append(replica)
    return list(of_device.items())


def _map(structure, kind, function):
    """Replaces each value of a kind by a function of its components."""

    def replaced(value):
        if not isinstance(value, kind):
            return value
        return function(value._value_specs if kind is values.PerReplicaSpec else value.values)

    return tf.nest.map_structure(replaced, structure)


def _to_replicas(structure, kind, strategy, split):
    """Replaces values with one component per device by values with one per replica."""

    def to_replicas(components):
        result = [None] * len(strategy.extended.worker_devices)
        pairs = zip(devices_and_replicas(strategy), components, strict=True)
        for (device, replicas), component in pairs:
            with tf.device(device):
                parts = split(component, len(replicas))
            for replica, part in zip(replicas, parts, strict=True):
                result[replica] = part
        return kind(*result) if kind is values.PerReplicaSpec else kind(result)

    return _map(structure, kind, to_replicas)


def _batches_of_replicas(batches, strategy):
    return _to_replicas(batches, values.PerReplica, strategy, split_rows)


def _spec_of_replicas(spec, strategy):
    return _to_replicas(spec, values.PerReplicaSpec, strategy, _split_spec)


def _may_be_batch(spec):
    if issubclass(spec.value_type, tf.experimental.ExtensionType):
        return _is_extension(spec.value_type)
    shape = getattr(spec, "shape", None)
    return shape is None or shape.rank != 0


def _is_extension(kind):
    """Returns True for users' types of which `tf.data` makes batches."""
    return issubclass(kind, tf.experimental.BatchableExtensionType)


def _split_spec(spec, count):
    """Returns the spec of each result of `split_rows`."""
    if _is_extension(spec.value_type):
        return [spec._unbatch()._batch(None)] * count
    if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec | tf.SparseTensorSpec):
        return [spec] * count
    rows = spec.shape[0]
    rows = None if rows is None or rows % count else rows // count
    # The public way to change a batch axis needs a dataset.
    return [spec._unbatch()._batch(rows)] * count


def split_rows(batch: Any, count: int) -> list[Any]:
    """Splits a batch into `count` parts of equal length; the first ones may have one row more."""
    if isinstance(batch, tf.Tensor):
        rows = batch.shape[0]
        if rows is not None and rows % count == 0:
            return tf.split(batch, count)
        return tf.split(batch, _lengths(tf.shape(batch)[0], count), num=count)
    if isinstance(batch, tf.RaggedTensor):
        rows = batch.nrows()
    elif isinstance(batch, tf.SparseTensor):
        rows = batch.dense_shape[0]
    elif _is_extension(type(batch)):
        return _split_extension(batch, count)
    else:
        return [batch] * count
    lengths = _lengths(rows, count)
    firsts = tf.cumsum(lengths, exclusive=True)
    if isinstance(batch, tf.RaggedTensor):
        return [batch[firsts[k] : firsts[k] + lengths[k]] for k in range(count)]
    rest = batch.dense_shape[1:]
    return [
        tf.sparse.slice(
            batch,
            tf.concat([firsts[k : k + 1], tf.zeros_like(rest)], 0),
            tf.concat([lengths[k : k + 1], rest], 0),
        )
        for k in range(count)
    ]


def _split_extension(batch, count):
    """Splits a value of a user's type by the tensors of which `tf.data` makes its batches."""
    spec = tf.type_spec_from_value(batch)
    tensors = data_structure.to_batched_tensor_list(spec, batch)
    parts = zip(*(split_rows(tensor, count) for tensor in tensors), strict=True)
    return [
        data_structure.from_compatible_tensor_list(of_part, list(part))
        for of_part, part in zip(_split_spec(spec, count), parts, strict=True)
    ]


def _lengths(rows, count):
    """Returns the number of rows of each part, an integer tensor of shape `[count]`."""
    return rows // count + tf.cast(tf.range(count, dtype=rows.dtype) < rows % count, rows.dtype)


@patch(input_lib, "_dummy_tensor_fn")
def _dummy_of_none(stock, value_structure):
    """Lets batches contain None, which stays None if a replica gets no batch.

    TensorFlow creates empty tensors for such replicas, and fails for None in every strategy.
    """

    def dummy(spec):
        return None if isinstance(spec, data_structure.NoneTensorSpec) else stock(spec)

    return tf.nest.map_structure(dummy, value_structure)


@patch(input_lib, "_create_per_replica")
def _none_of_replicas(stock, value_list, strategy):
    """Lets an `Optional` hold batches with None, as steps in a function read them.

    An `Optional` takes no values of replicas that are None, but takes None.
    """

    def merged(value):
        is_none = isinstance(value, values.PerReplica) and all(
            part is None for part in value.values
        )
        return None if is_none else value

    return tf.nest.map_structure(merged, stock(value_list, strategy))


@patch(input_lib, "_create_distributed_tensor_spec")
def _spec_of_none(stock, strategy, tensor_spec):
    """Describes what `_none_of_replicas` returns."""

    def merged(spec):
        if isinstance(spec, values.PerReplicaSpec):
            first = spec._value_specs[0]
            return first if isinstance(first, data_structure.NoneTensorSpec) else spec
        return spec

    return tf.nest.map_structure(merged, stock(strategy, tensor_spec))


@patch(input_lib, "_rebatch_as_dynamic")
def _rebatch_unless_none(stock, per_replica_spec):
    """Takes the specs of `_spec_of_none`."""
    is_none = isinstance(per_replica_spec, data_structure.NoneTensorSpec)
    return per_replica_spec if is_none else stock(per_replica_spec)
