"""`ClusterOptions`: start and communication of the processes of a cluster."""

import dataclasses

from terngrad_tf.common import tokens
from terngrad_tf.common.arguments import check, check_integer
from terngrad_tf.common.options import check_options, documented, option

COMMUNICATIONS = ("nccl", "ring")


def _is_communication(name, value):
    known = ("auto", *COMMUNICATIONS)
    check(value in known, name, f"must be one of {known}", value)


def _is_time(name, value):
    # TensorFlow counts milliseconds; 0 means no limit.
    is_time = isinstance(value, int | float) and 1 <= value <= 1e6
    check(is_time, name, "must be seconds from 1 to 1e6", value)


def _is_token(name, value):
    tokens.checked(value, f"`{name}`")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options for the start and the communication of a cluster; a single process needs none.

    Example:
    >>> ClusterOptions(num_processes=2, start_timeout=60).communication
    'auto'

    Raises:
        ValueError: an argument is out of range.
    """

    num_processes: int | None = option(
        None,
        "Number of processes that the cluster must have; a process that was started without "
        "`TF_CONFIG` then does not train alone. None: the environment variable "
        "TERNGRAD_TF_NUM_PROCESSES, if set.",
        check_integer,
        shared=False,
    )
    start_timeout: float = option(
        600,
        "Seconds that processes wait for each other, at the start and before the first step, when "
        "they compare their settings.",
        _is_time,
        shared=False,
    )
    communication: str = option(
        "auto",
        "Transport between processes. 'ring': TensorFlow's own connections, through the memory of "
        "the hosts, with or without GPUs; 'nccl': from GPU to GPU; 'auto': 'ring', but 'nccl' if a "
        "process has several GPUs.",
        _is_communication,
    )
    communication_timeout: float | None = option(
        None,
        "Seconds after which a collective that misses a peer fails. None: no limit; the package "
        "finds dead peers, and processes that wait for each other at different places, anyway, and "
        "waits for slow ones.",
        shared=False,
    )
    token: str | None = option(
        None,
        "Secret of at least 16 characters that all processes must share to meet: see "
        "[security](../../security.md). None: the environment variable TERNGRAD_TF_TOKEN, if set.",
        _is_token,
        shared=False,
        shown=False,
    )

    def __post_init__(self) -> None:
        check_options(self)
