"""Flags for a process's place in a cluster, and the cluster that they describe."""

import contextlib
import typing
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin.common import flags
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import Config, configuration, harmless, option
from terngrad_tf.training.errors import UserError, as_user_error, require

if typing.TYPE_CHECKING:
    import tensorflow as tf


# Flags that describe a cluster.
SOURCES = ("worker_hosts", "rank_table_file", "slurm")
WORKER = "worker"
PORT = 2222
# More than a node's tasks.
_MANY = 1 << 16


@configuration
@harmless
class ClusterFlags(Config):
    """A process's place in a cluster, and how to find it; runs compare the number of processes."""

    worker_hosts: str = option(
        "",
        "host:port,host:port,... of all worker processes, the same on each. Without this flag, "
        "--rank_table_file, --slurm or the environment variable TF_CONFIG defines the cluster.",
    )
    task_id: int = option(
        0,
        "Index of this process in its job's list, from 0. Worker 0 writes checkpoints and logs.",
        checks.COUNT_OR_0,
    )
    rank_table_file: str = option(
        "", "Rank table (JSON) whose devices are the workers.", checks.path
    )
    rank_id: int = option(0, "This process's rank in --rank_table_file.", checks.COUNT_OR_0)
    slurm: bool = option(False, "Take the cluster from Slurm; for programs under srun.")
    port: int = option(
        PORT,
        "Port of the first worker on each host, for --rank_table_file and --slurm.",
        checks.integers(1, 2**16 - 1),
    )
    start_timeout: float = option(
        600.0,
        "Seconds to wait for the other processes at the start.",
        checks.Range(1, 10**6),
    )
    token_file: str = option(
        "",
        "File with one line, a secret that all processes must share to meet. Default: the "
        "environment variable TERNGRAD_TF_TOKEN, if set.",
        checks.path,
    )

    def arguments(self) -> dict[str, Any]:
        """Returns `start_timeout` and `token` of the rendezvous."""
        from terngrad_tf.common import tokens

        token = None
        if self.token_file:
            with _reading("token_file", self.token_file):
                token = tokens.token_from_file(self.token_file)
        return {"start_timeout": self.start_timeout, "token": token}

    def resolver(
        self, job_name: str = WORKER, ps_hosts: str = ""
    ) -> "tf.distribute.cluster_resolver.ClusterResolver | None":
        """Returns the resolver of the cluster in flags or `TF_CONFIG`, or None."""
        from terngrad_tf import distribute

        given = [name for name in SOURCES if getattr(self, name)]
        self.refuse_given(given[1:], f"together with `{given[0]}`" if given else "")
        rule = f"must be {WORKER} if `worker_hosts` is not given"
        require(job_name == WORKER or self.worker_hosts, "job_name", rule, job_name)
        if self.rank_table_file:
            with _reading("rank_table_file", self.rank_table_file):
                return distribute.cluster_from_rank_table(
                    self.rank_table_file, self.rank_id, port=self.port
                )
        with as_user_error():
            if self.worker_hosts:
                return distribute.cluster_from_hosts(
                    worker_hosts=self.worker_hosts,
                    job_name=job_name,
                    task_id=self.task_id,
                    ps_hosts=ps_hosts,
                )
            if self.slurm:
                return _slurm_resolver(self.port)
            resolver = distribute.cluster_from_tf_config()
        return resolver if resolver.cluster_spec().as_dict() else None


@contextlib.contextmanager
def _reading(name, path):
    """Turns errors in the file that a flag names into UserErrors."""
    with as_user_error():
        try:
            yield
        except OSError as error:
            raise UserError(
                f"`{name}` must be a file that can be read. "
                f"Received: {name}={path!r} ({error.strerror})"
            ) from error


def _slurm_resolver(port):
    import tensorflow as tf

    try:
        # srun assigns GPUs, possibly none; by default, the resolver would count them with
        # nvidia-smi.
        return tf.distribute.cluster_resolver.SlurmClusterResolver(
            port_base=port, gpus_per_node=_MANY, gpus_per_task=1, auto_set_gpu=False
        )
    except RuntimeError as error:  # missing variables of Slurm
        raise ValueError(str(error)) from error


def define(values: FlagValues, kind: type[ClusterFlags] = ClusterFlags) -> None:
    """Defines the flags of `kind` and --max_restarts."""
    flags.define(values, kind)
    # absl checks the number, which is needed before any configuration exists.
    flags.define_within(
        values,
        "max_restarts",
        0,
        "Total number of restarts after the process is killed or loses another worker; it resumes "
        "from the last checkpoint. Give it to all workers. 0: never.",
        0,
        10**6,
    )


def arguments(values: FlagValues) -> dict[str, Any]:
    """Returns arguments of `training.train` and `train_in_subspace` for the cluster."""
    own = flags.config_of(values, ClusterFlags)
    return {"cluster_resolver": own.resolver(), **own.arguments()}
