"""Local steps of torchft: its `LocalSGD` and `DiLoCo`, over gloo and a lighthouse a mode."""

import datetime

import torch
import torchft
from torch import distributed
from torchft import local_sgd
from torchft.coordination import LighthouseServer

from benchmarks.time_to_accuracy import workload

# Ports of the lighthouses, by kind of local steps.
PORTS = {"torchft_local_sgd": 4735, "torchft_diloco": 4736}
_TIMEOUT = datetime.timedelta(minutes=30)


class Member:
    """One worker's part in the trainings of a mode: a replica group of one process.

    Args:
        name: a key of `PORTS`.
        first_host: address of the host that runs the lighthouse.
    """

    def __init__(self, name, index, count, first_host, host):
        self._name, self._index, self._count = name, index, count
        self._lighthouse = first_host, PORTS[name]
        self._host = host
        self._server = None
        if index == 0:
            self._server = LighthouseServer(bind=f"0.0.0.0:{PORTS[name]}", min_replicas=count)
        # A manager reads its process's store as long as it lives.
        self._store = self._manager = None

    def prepare(self, module, optimizer, sync_every):
        """Lets an optimizer exchange every `sync_every` steps; ends the training before."""
        if self._manager:
            self._manager.shutdown()
        self._store = distributed.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self._manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=_TIMEOUT),
            load_state_dict=None,
            state_dict=None,
            min_replica_size=self._count,
            # `DiLoCo` requires it.
            use_async_quorum=False,
            timeout=_TIMEOUT,
            quorum_timeout=_TIMEOUT,
            rank=0,
            world_size=1,
            store_addr=self._host,
            store_port=self._store.port,
            lighthouse_addr="http://{}:{}".format(*self._lighthouse),
            replica_id=f"worker_{self._index}",
            hostname=self._host,
            # All workers have the same initial weights.
            init_sync=False,
        )
        if self._name == "torchft_local_sgd":
            steps = local_sgd.LocalSGD(self._manager, module, optimizer, sync_every)
        else:
            outer = torch.optim.SGD(
                module.parameters(),
                workload.OUTER_RATE,
                momentum=workload.OUTER_MOMENTUM,
                nesterov=True,
            )
            # One message for all weights, as in all other modes.
            how = {"use_bucketization": True}
            steps = local_sgd.DiLoCo(self._manager, [module], optimizer, outer, sync_every, **how)
        # Adds hooks to the optimizer.
        steps.__enter__()
