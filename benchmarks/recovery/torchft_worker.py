"""A worker of the benchmark of recovery under torchft: DATA TASK ADDRESS INTERFACE LIGHTHOUSE.

`benchmarks.recovery` runs it, with an interpreter that has torchft. Torchft's example
train_ddp.py has the same timeouts and transfer of state to a worker that returns.
"""

import datetime
import os
import pathlib
import sys

import numpy as np
import torch
import torchft
from torch import distributed, nn
from torchft.checkpointing.pg_transport import PGTransport

WORKERS, BATCH_SIZE = 3, 32
# Process group, transfer and manager.
_GROUP, _TRANSFER, _MANAGER = (datetime.timedelta(seconds=n) for n in (5, 10, 30))


class Parallel(torchft.DistributedDataParallel):
    """torchft's, whose own hook ends the program of the others when a peer is lost.

    The hook of torchft 0.2.0 asserts a future that a failed exchange does not have. The exchange
    has ended when `wait` returns, and the manager knows whether it failed.
    """

    @staticmethod
    def _comm_hook(state, bucket):
        state.allreduce(bucket.buffer()).wait()
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def network():
    """Returns the LeNet of `terngrad_tf.models.lenet`, of 1,256,080 weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(20, 50, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(7 * 7 * 50, 500), nn.ReLU(), nn.Linear(500, 10)),
    )


def main(argv):
    """Trains until it is killed, and prints a line for each step that counts."""
    data, task, host, interface, lighthouse = argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    torch.set_num_threads(1)
    files = (pathlib.Path(data, f"{name}.npy") for name in ("images", "labels"))
    images, labels = (torch.from_numpy(np.load(file)) for file in files)
    group = torchft.ProcessGroupGloo(timeout=_GROUP)
    store = distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=group,
        min_replica_size=WORKERS - 1,
        load_state_dict=lambda state: (
            module.load_state_dict(state["model"]),
            optimizer.load_state_dict(state["optimizer"]),
        ),
        state_dict=lambda: {"model": module.state_dict(), "optimizer": optimizer.state_dict()},
        timeout=_MANAGER,
        checkpoint_transport=PGTransport(group, timeout=_TRANSFER, device=torch.device("cpu")),
        rank=0,
        world_size=1,
        store_addr=host,
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"worker_{task}",
        hostname=host,
    )
    module = Parallel(manager, network())
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(module.parameters(), 0.01, momentum=0.9))
    draw = np.random.default_rng(int(task))
    while True:
        chosen = draw.integers(len(images), size=BATCH_SIZE)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images[chosen]), labels[chosen]).backward()
        before = manager.current_step()
        optimizer.step()
        # A worker that has just copied its state contributes no gradient to this step.
        if manager.current_step() > before and manager.is_participating():
            now = datetime.datetime.now()
            print(f"Worker {task}: {now}: step {manager.current_step()},", flush=True)


if __name__ == "__main__":
    main(sys.argv)
