"""Variables with one copy per device, shared by the device's replicas, and how they stay equal."""

import contextlib
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils, values

from terngrad_tf import ternary
from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.replicas.accumulators import stand_for_total
from terngrad_tf.distribute.private.replicas.aggregation import (
    aggregate_writes,
    check_written,
    warn_of_means,
)
from terngrad_tf.distribute.private.replicas.agreement import agreed_by_processes
from terngrad_tf.distribute.private.replicas.devices import (
    are_of_same_tensors,
    value_outside_functions,
)
from terngrad_tf.distribute.private.replicas.merging import merge
from terngrad_tf.distribute.private.replicas.padding import current_padding
from terngrad_tf.distribute.private.replicas.reductions import is_per_replica
from terngrad_tf.distribute.private.replicas.step_checks import assert_on_host


class SharedVariables(LocalReplicas):
    """Creates and updates variables for a strategy's `extended`."""

    _one_for_each_replica = False
    _is_gathered: Callable[[], bool] | None = None
    _warn_of_means = staticmethod(warn_of_means)

    @property
    def _devices(self):
        """The devices; while a thread creates a variable with a copy per replica, one for each."""
        return getattr(self._devices_of_copies, "value", None) or self._all_devices

    @_devices.setter
    def _devices(self, devices):
        self._all_devices = devices

    def _create_variable(self, next_creator, **kwargs):
        initial_value = value_outside_functions(kwargs.get("initial_value"), kwargs.get("dtype"))
        kwargs["initial_value"] = initial_value
        # A step that makes a variable would assign initial values to the copies while it runs.
        # Replicas write to their copies then, and TensorFlow cannot order these writes: each
        # replica's part of the step takes the copies as several arguments.
        of_step = tf.is_symbolic_tensor(initial_value)
        is_known = not callable(initial_value) and not of_step
        with tf.init_scope() if is_known else contextlib.nullcontext():
            variable = self._create_components(next_creator, **kwargs)
        has_copies = len({id(copy) for copy in variable.values}) > 1
        # Processes would wait forever: each begins its broadcast of the value at another place.
        if of_step and (has_copies or self.process_group is not None):
            raise ValueError(
                f"A step made the variable {variable.name.removesuffix(':0')!r} with an initial "
                "value that depends on the step's arguments, or on a variable that the step wrote "
                "before. Replicas or processes have their own copies of the new variable, which "
                f"may then differ. Make it before the step. Received: initial_value={initial_value}"
            )
        for component in variable.values:
            # Replicas find their own copy by it. TensorFlow sets it on the component instead if a
            # function that is being traced makes the variable.
            component.handle._distributed_container = weakref.ref(variable)
        return variable

    def _create_components(self, next_creator, **kwargs):
        # Optimizer slots are created beside their variable, one per device.
        is_slot = kwargs.pop("colocate_with", None) is not None
        on_read = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
        unsynchronized = (
            kwargs.get("aggregation", tf.VariableAggregation.NONE) == tf.VariableAggregation.NONE
        )
        is_own = self._one_for_each_replica
        if (
            on_read
            or is_own
            or (unsynchronized and kwargs.get("trainable") is False and not is_slot)
        ):
            self._devices_of_copies.value = self.worker_devices
            try:
                variable = super()._create_variable(next_creator, **kwargs)
            finally:
                self._devices_of_copies.value = None
            is_stated = on_read or is_own
            is_statistic = not is_stated and variable.dtype.is_floating
            if on_read or is_statistic:
                self._guard(variable, is_statistic)
            if not is_stated:
                self._check_writes(variable)
            if self._is_gathered is not None:
                stand_for_total(self._container_strategy(), variable, self._is_gathered)
            return variable
        variable = super()._create_variable(next_creator, **kwargs)
        variable._values = tuple(variable._values[device] for device in self._device_of_replica)
        if unsynchronized:
            self._write_once(variable)
        else:
            aggregate_writes(self, variable)
        return variable

    @property
    def makes_own_variables(self) -> bool:
        """True if each replica gets its own copy of variables that are created now."""
        return self._one_for_each_replica

    @contextlib.contextmanager
    def variables_of_replicas(self) -> Iterator[None]:
        """Context in which each replica gets its own copy of variables that are created."""
        before, self._one_for_each_replica = self._one_for_each_replica, True
        try:
            yield
        finally:
            self._one_for_each_replica = before

    @contextlib.contextmanager
    def sums_of_replicas(self, is_gathered: Callable[[], bool]) -> Iterator[None]:
        """Like `variables_of_replicas`, for sums that are saved as a total: see `stand_for_total`.

        Inside `variables_of_replicas`, they are ordinary variables of replicas.
        """
        before = self._is_gathered
        self._is_gathered = None if self._one_for_each_replica else is_gathered
        try:
            with self.variables_of_replicas():
                yield
        finally:
            self._is_gathered = before

    def _guard(self, variable, is_statistic):
        """Undoes writes of replicas without examples; notes written statistics."""
        update_replica = variable._update_replica

        def guarded_update(update_fn, value, **kwargs):
            if is_statistic:
                self._written[id(variable)] = variable
            empty = current_padding().is_empty
            if empty is None:
                return update_replica(update_fn, value, **kwargs)
            component = variable._get_on_device_or_primary()
            before = component.read_value()
            update_replica(update_fn, value, **kwargs)
            return component.assign(tf.where(empty, before, component.read_value()))

        variable._update_replica = guarded_update

    def _check_writes(self, variable):
        """Refuses values for which a mean over replicas is wrong."""
        update_replica = variable._update_replica

        def checked_update(update_fn, value, **kwargs):
            check_written(self, variable, value)
            return update_replica(update_fn, value, **kwargs)

        variable._update_replica = checked_update

    def _write_once(self, variable):
        """Lets replicas write a shared variable once, if they write equal values."""
        message = (
            f"A step assigned to the weight {variable.name.removesuffix(':0')!r} values that differ"
            " between replicas, which share it. Reduce what is assigned, with"
            " `tf.distribute.get_replica_context().all_reduce`, or make the weight with an"
            ' `aggregation`, such as "mean"'
        )

        def update_once(update_fn, value, **kwargs):
            def write(strategy, value):
                value = agreed_by_processes(
                    self.process_group, self._one_a_device(value, message), message
                )
                return strategy.extended.update(variable, update_fn, args=(value,), kwargs=kwargs)

            return merge(write, value)

        variable._update_replica = update_once

    def _assign_means(self, variables, group, shares=None):
        """Gives all local replicas the means of their variables.

        Args:
            variables: floating-point variables with a copy for each replica.
            group: `ProcessGroup` to average over; None: local replicas only.
            shares: weight of each local replica, with sum 1 over the group. Default: equal weights.
        """
        by_precision = {}
        for variable in variables:
            precision = tf.float64 if variable.dtype == tf.float64 else tf.float32
            by_precision.setdefault(precision, []).append(variable)
        for precision, alike in by_precision.items():
            self._assign_means_in(precision, alike, group, shares)

    def _assign_means_in(self, precision, variables, group, shares):
        components = list(zip(*(variable.values for variable in variables), strict=True))
        count = len(components) * (group.size if group else 1)
        shares = shares or [None] * len(components)
        flat = []
        for device, local, share in zip(self.worker_devices, components, shares, strict=True):
            with tf.device(device):
                part = tf.concat([tf.reshape(tf.cast(v, precision), [-1]) for v in local], 0)
                flat.append(part if share is None else part * tf.cast(share, precision))
        with tf.device(self.worker_devices[0]):
            mean = ternary.sum_in_order(flat)
            if group is not None:
                mean = group.all_reduce_sum(mean)
            if shares[0] is None:
                mean /= count
        for device, local in zip(self.worker_devices, components, strict=True):
            with tf.device(device):
                parts = tf.split(mean, [v.shape.num_elements() for v in local])
                for variable, part in zip(local, parts, strict=True):
                    variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype))

    def _update(self, var, fn, args, kwargs, group):
        if len({id(component) for component in var.values}) < len(var.values):
            args, kwargs = self._one_a_device((args, kwargs), _update_message(var.name))
        updates = {}
        for replica, component in enumerate(var.values):
            if id(component) not in updates:
                with (
                    tf.device(component.device),
                    distribute_lib.UpdateContext(replica),
                    tf.name_scope(f"update_{replica}"),
                ):
                    own = distribute_utils.select_replica(replica, [args, kwargs])
                    own_args, own_kwargs = typing.cast(typing.Any, own)
                    updates[id(component)] = fn(component, *own_args, **own_kwargs)
        by_replica = [updates[id(component)] for component in var.values]
        return distribute_utils.update_regroup(self, by_replica, group)

    def _update_non_slot(self, colocate_with, fn, args, kwargs, group):
        if len(self._devices) < len(self._device_of_replica):
            message = _update_message("`update_non_slot`")
            args, kwargs = self._one_a_device((args, kwargs), message)
        return super()._update_non_slot(colocate_with, fn, args, kwargs, group)

    def agreed(self, value: Any) -> Any:
        """Returns one value per device if all replicas of a device have the same."""
        if not is_per_replica(value):
            return value
        by_device = [
            value.values[self._device_of_replica.index(d)] for d in self._device_of_replica
        ]
        return values.Mirrored(by_device)

    def _one_a_device(self, structure, message):
        """Converts per-replica values to values that the replicas of a device share.

        Raises, when it runs, if the replicas of a device have different values.
        """

        def one(value):
            if isinstance(value, values.DistributedVariable) or not is_per_replica(value):
                return value
            checks = []
            for replica, device in enumerate(self._device_of_replica):
                first = value.values[self._device_of_replica.index(device)]
                other = value.values[replica]
                if not are_of_same_tensors([first, other]):
                    parts = [tf.nest.flatten(v, expand_composites=True) for v in (first, other)]
                    if not all(isinstance(part, tf.Tensor) for part in sum(parts, [])):
                        raise ValueError(f"{message}. Received: {value}")
                    checks += [_assert_same(a, b, message) for a, b in zip(*parts, strict=True)]
            with tf.control_dependencies([check for check in checks if check is not None]):
                agreed = self.agreed(value)
                if not any(isinstance(own, tf.IndexedSlices) for own in agreed.values):
                    return tf.nest.map_structure(tf.identity, agreed)
                return values.Mirrored(
                    [
                        tf.nest.map_structure(tf.identity, own, expand_composites=True)
                        for own in agreed.values
                    ]
                )

        return tf.nest.map_structure(one, structure)


def _update_message(what):
    return (
        f"`extended.update` of {what} got values that differ between replicas, which share one "
        "copy of it. Reduce them first, with `replica_context.all_reduce` or "
        "`extended.reduce_to`"
    )


def _assert_same(first, other, message):
    if not first.shape.is_compatible_with(other.shape) or first.dtype != other.dtype:
        raise ValueError(f"{message}. Received: {first} and {other}")
    same = tf.equal(first, other)
    if first.dtype.is_floating:
        same |= tf.math.is_nan(first) & tf.math.is_nan(other)
    return assert_on_host(tf.reduce_all(same), message)
