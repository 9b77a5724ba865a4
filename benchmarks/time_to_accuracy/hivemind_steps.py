"""Local steps of hivemind: weights averaged by its `DecentralizedAverager`, in codes of 8 bits."""

import itertools

import hivemind
import torch
from hivemind import averaging, compression
from torch import distributed

_SECONDS = 600.0
_numbers = itertools.count()


class Member:
    """One worker's part in the trainings of a mode."""

    def __init__(self, index, count, host):
        self._count = count
        options = {"host_maddrs": [f"/ip4/{host}/tcp/0"], "use_ipfs": False, "use_relay": False}
        self._table, addresses = None, [None]
        if index == 0:
            self._table = hivemind.DHT(start=True, **options)
            addresses = [[str(address) for address in self._table.get_visible_maddrs()]]
        distributed.broadcast_object_list(addresses, src=0)
        if index:
            self._table = hivemind.DHT(start=True, initial_peers=addresses[0], **options)
        self._averager = None

    def prepare(self, module, optimizer, sync_every):
        """Lets an optimizer average weights every `sync_every` steps; ends the training before."""
        if self._averager is not None:
            self._averager.shutdown()
        weights = [parameter.detach() for parameter in module.parameters()]
        averager = self._averager = averaging.DecentralizedAverager(
            [weight.clone() for weight in weights],
            self._table,
            prefix=f"training_{next(_numbers)}",
            start=True,
            initial_group_bits="",
            # The last member completes the group, which then begins.
            min_group_size=self._count,
            target_group_size=self._count,
            min_matchmaking_time=1.0,
            request_timeout=0.5,
            compression=compression.Uniform8BitQuantization(),
        )
        steps = itertools.count(1)

        def average(*_):
            if next(steps) % sync_every:
                return
            with torch.no_grad(), averager.get_tensors() as tensors:
                for tensor, weight in zip(tensors, weights, strict=True):
                    tensor.copy_(weight)
            members = averager.step(timeout=_SECONDS)
            if members is None or len(members) != self._count:
                raise RuntimeError(f"hivemind did not average over all workers: {members}")
            with torch.no_grad(), averager.get_tensors() as tensors:
                for tensor, weight in zip(tensors, weights, strict=True):
                    weight.copy_(tensor)

        optimizer.register_step_post_hook(average)
