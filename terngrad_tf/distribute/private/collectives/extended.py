"""The attributes that the parts of a strategy's `extended` share."""

import typing
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tensorflow.python.distribute import distribute_lib

if typing.TYPE_CHECKING:
    from terngrad_tf.distribute.private.collectives.process_group import ProcessGroup


class LocalReplicas(distribute_lib.StrategyExtendedV1):
    """Base of the parts. Together with a class of TensorFlow they form `extended`.

    Attributes:
        process_group: None without a cluster.
        shares_of_run: returns local replicas' shares of the examples while a function runs on
            batches of different lengths; else None.
        examples_of_run: examples of all local replicas, int or integer scalar tensor, while a
            function runs on batches of known length; else None.
        turn: held by the thread that traces a step, or runs it eagerly.
        first_step: callback that logs the chief's messages at the first step of `fit`.
        calls: `calls.Calls` of several processes; else None.
    """

    process_group: "ProcessGroup | None"
    turn: AbstractContextManager[typing.Any]
    worker_devices: Sequence[str]
    shares_of_run: Callable[[], Sequence[typing.Any]] | None = None
    examples_of_run: typing.Any = None
    calls: typing.Any = None
    first_step: typing.Any = None
    _devices: typing.Any
    _devices_of_copies: typing.Any
    _device_of_replica: list[int]
    _written: dict[int, typing.Any]
    _assign_means: Callable[..., None]
    _warn_of_means: Callable[..., None]
    compiling: Callable[[bool], AbstractContextManager[None]]
    _get_variable_creator_initial_value: Callable[..., typing.Any]
    _input_workers: typing.Any
    _make_input_context: Callable[[], typing.Any]
