"""A worker of the benchmark of time to accuracy under PyTorch, over gloo.

`benchmarks.time_to_accuracy` runs it, with an interpreter that has PyTorch: INDEX HOSTS INTERFACE
DATA THREADS ADDRESS.
"""

import functools
import os
import socket
import sys

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

from benchmarks.time_to_accuracy import worker, workload


class Network(nn.Module):
    """The network; its weights are those of `workload.SHAPES`, with axes in PyTorch's order."""

    def __init__(self, weights):
        super().__init__()
        first, second = workload.FILTERS
        self.features = nn.Sequential(
            *(nn.Conv2d(1, first, workload.KERNEL), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, workload.KERNEL), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.dense = nn.Sequential(
            nn.Linear(workload.FEATURES, workload.HIDDEN),
            nn.ReLU(),
            nn.Linear(workload.HIDDEN, workload.CLASSES),
        )
        with torch.no_grad():
            for parameter, array in zip(self.parameters(), weights, strict=True):
                axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[array.ndim]
                parameter.copy_(torch.from_numpy(array.transpose(axes).copy()))

    def forward(self, images):
        """Returns logits of images [n, 28, 28, 1]."""
        # With one channel, both orders of the axes have the same memory.
        features = self.features(images.reshape(-1, 1, 28, 28))
        return self.dense(features.permute(0, 2, 3, 1).flatten(1))


def _parallel(module, power=False):
    # PowerSGD's hook waits for an exchange within gloo's two threads: two buckets deadlock.
    return nn.parallel.DistributedDataParallel(
        module, gradient_as_bucket_view=True, bucket_cap_mb=1024 if power else None
    )


@functools.cache
def _torchft_member(name):
    # torchft is optional.
    from benchmarks.time_to_accuracy import torchft_steps

    index, hosts, *_, address = sys.argv[1:]
    first_host = address.split(":")[0]
    own = _own_address(first_host)
    return torchft_steps.Member(name, int(index), int(hosts), first_host, own)


@functools.cache
def _hivemind_member():
    # hivemind is optional.
    from benchmarks.time_to_accuracy import hivemind_steps

    index, hosts, *_, address = sys.argv[1:]
    return hivemind_steps.Member(int(index), int(hosts), _own_address(address.split(":")[0]))


def _own_address(peer):
    """Returns the address of this host that a peer, an address, sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 1))
        return probe.getsockname()[0]


def _prepare(mode, module, optimizer):
    """Returns the module and the optimizer of a mode."""
    name, _, number = mode.rpartition("_")
    if name.startswith("torchft"):
        _torchft_member(name).prepare(module, optimizer, int(number))
        return module, optimizer
    if name.startswith("hivemind"):
        _hivemind_member().prepare(module, optimizer, int(number))
        return module, optimizer
    model = _parallel(module, name == "ddp_powersgd")
    if mode == "ddp_fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "ddp_powersgd":
        # PowerSGD starts from a warm state, so its first two steps are float32.
        state = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=int(number), start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name == "post_local_sgd":
        # Synchronous steps first would take longest on slow links.
        state = post_localSGD_hook.PostLocalSGDState(
            None, None, start_localSGD_iter=0, post_local_gradient_allreduce=False
        )
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        # Without warm-up, the averager would run after the first step.
        averager = PeriodicModelAverager(period=int(number), warmup_steps=int(number) - 1)
        optimizer = PostLocalSGDOptimizer(optimizer, averager)
    return model, optimizer


def _optimizer(name, parameters, rate):
    if name == "sgd":
        return torch.optim.SGD(parameters, rate, momentum=workload.MOMENTUM)
    decay, epsilon = workload.WEIGHT_DECAY, workload.EPSILON
    return torch.optim.AdamW(parameters, rate, weight_decay=decay, eps=epsilon)


class Training:
    """See `time_to_accuracy_worker.serve`."""

    def __init__(self, mode, weights, name, rate, num_steps):
        module = Network(weights)
        optimizer = _optimizer(name, module.parameters(), rate)
        self._model, self._optimizer = _prepare(mode, module, optimizer)
        self._rate, self._num_steps, self._steps = rate, num_steps, 0

    def step(self, images, labels):
        """Takes a step."""
        rate, last = (
            workload.learning_rate(self._rate, step, self._num_steps) if step >= 0 else None
            for step in (self._steps, self._steps - 1)
        )
        for group in self._optimizer.param_groups:
            group["lr"] = rate
            if "momentum" in group:
                group["momentum"] = workload.momentum(rate, last)
        self._optimizer.zero_grad()
        logits = self._model(torch.from_numpy(images))
        nn.functional.cross_entropy(logits, torch.from_numpy(labels)).backward()
        self._optimizer.step()
        self._steps += 1

    def finish(self):
        """Does nothing, because steps return when they end."""

    def logits(self, images):
        """Returns the logits without gradients."""
        # DistributedDataParallel would broadcast in its forward pass.
        module = getattr(self._model, "module", self._model)
        with torch.no_grad():
            return module(torch.from_numpy(images)).numpy()


def main(argv):
    """Runs the worker; `argv` is its command line."""
    index, hosts, interface, _, threads, address = argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    torch.set_num_threads(int(threads))
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{address}", rank=int(index), world_size=int(hosts)
    )
    worker.serve(Training, argv[1:5])


if __name__ == "__main__":
    main(sys.argv)
