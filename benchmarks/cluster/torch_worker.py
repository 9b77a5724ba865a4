"""A worker of the cluster benchmark under PyTorch: DistributedDataParallel over gloo.

`benchmarks.cluster` runs it, with an interpreter that has PyTorch: MODES RANK HOSTS ADDRESS MODEL
INTERFACE THREADS BATCH_SIZE, with commas between modes.
"""

import copy
import os
import sys

from benchmarks.cluster import models
from benchmarks.lib import step_server


def _network():
    from torch import nn

    size = models.FILTERS * models.IMAGE**2
    return nn.Sequential(
        nn.Conv2d(1, models.FILTERS, 3, padding="same"),
        nn.BatchNorm2d(models.FILTERS),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(size, models.HIDDEN),
        nn.ReLU(),
        nn.Linear(models.HIDDEN, models.CLASSES),
    )


def _hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    # PowerSGD starts from a warm state, so its first two steps are float32.
    power = powerSGD_hook.PowerSGDState(
        process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2
    )
    return {
        "ddp_float32": None,
        "ddp_fp16": (None, default_hooks.fp16_compress_hook),
        "ddp_powersgd": (power, powerSGD_hook.powerSGD_hook),
    }


def _step(module, hook, loss_of):
    import torch

    # PowerSGD's hook waits for an exchange within gloo's two threads: two buckets deadlock.
    power = hook is not None and hook[0] is not None
    model = torch.nn.parallel.DistributedDataParallel(
        module, gradient_as_bucket_view=True, bucket_cap_mb=1024 if power else None
    )
    if hook is not None:
        model.register_comm_hook(*hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step


def main(argv):
    """Runs the worker; `argv` is its command line."""
    import torch

    modes, rank, hosts, address, model, interface, threads, batch_size = argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    torch.set_num_threads(int(threads))
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{address}", rank=int(rank), world_size=int(hosts)
    )
    if model == "digits":
        module = _network()
        images = torch.rand(int(batch_size), 1, models.IMAGE, models.IMAGE)
        labels = torch.arange(int(batch_size)) % models.CLASSES

        def loss_of(network):
            return torch.nn.functional.cross_entropy(network(images), labels)

    else:
        factors = [torch.randn(shape) for shape in models.ALEXNET_SHAPES]

        class Linear(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weights = torch.nn.ParameterList(torch.zeros_like(f) for f in factors)

            def forward(self):
                return sum((w * f).sum() for w, f in zip(self.weights, factors, strict=True))

        module = Linear()

        def loss_of(network):
            return network()

    hooks = _hooks()
    steps = {mode: _step(copy.deepcopy(module), hooks[mode], loss_of) for mode in modes.split(",")}
    step_server.serve(interface, steps)


if __name__ == "__main__":
    main(sys.argv)
