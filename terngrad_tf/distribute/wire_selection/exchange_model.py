"""Expected seconds of an exchange of gradients by each wire."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange import buckets as exchange
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, ring_bytes
from terngrad_tf.distribute.wire_selection import links

MODES = ("float32", *(name for name in wires.WIRES if name != "auto"))


@dataclasses.dataclass(frozen=True)
class ExchangeModel:
    """Expected seconds of an exchange.

    Args:
        job: what is exchanged, `stopwatch.Job`.
        link: `links.Link`.
        nonzero_share: of the codes.
    """

    job: Any
    link: links.Link
    nonzero_share: float

    def seconds(self, mode: str, unit: float) -> float:
        """Seconds of an exchange in a mode, `unit` being those of an element's unit of codec."""
        buckets, floats = self._parts(mode)
        num_bytes = ring_bytes(WORD_BYTES * sum(floats), self.job.num_members)
        messages = 2 if floats else 0
        for sizes in buckets:
            wire = wires.choose(
                mode, sizes, self.job.num_members, self.job.num_local, self.job.levels
            )
            num_bytes += WORD_BYTES * wire.expected_words(self.nonzero_share)
            # One more for the scales.
            messages += 1 + wire.num_messages
        codec = unit * self.units(mode) * sum(map(sum, buckets))
        return codec + messages * self.link.message_seconds + num_bytes * self.link.seconds_per_byte

    def unit_seconds(self, mode: str, codec_seconds: float) -> float:
        """Seconds of a unit: measured, where the run's mode was ternary."""
        buckets, _ = self._parts(mode)
        units = self.units(mode) * sum(map(sum, buckets))
        return codec_seconds / units if units else seconds_of_doubling()

    def units(self, mode: str) -> float:
        """What an element's arithmetic takes, doubling a float32 in place of it being 1.

        Measured on 2 and 16 million elements, on one thread, for 2 and 4 members of one replica;
        streams, whose many steps take longer on few elements, by 30 % more or less.
        """
        if mode == "float32":
            return 0.0
        members, local, share = self.job.num_members, self.job.num_local, self.nonzero_share
        encode, decode = 2.3 * local, 1.2
        if self.job.rotated:
            encode, decode = encode + 4.5 * local, decode + 4.0

        def compress(share):
            return min(1.5 + 80 * share, 10.0)

        def decompress(share):
            return 1 + 15 * share

        return {
            "allgather": encode + decode + 0.3 * (members - 1),
            "alltoall": encode + 2.0 + decode,
            "allreduce": encode + 1.0 + decode,
            "bidirectional": encode + 2.5 + decode,
            "sparse": encode + self._sparse_units(compress, decompress) + decode,
            "sparse_bidirectional": encode
            + (local + 1 / members) * compress(share)
            + (local + 1) * decompress(share)
            + decode,
        }[mode]

    def _sparse_units(self, compress, decompress):
        """What the streams of `wire="sparse"` take, from what one takes at a share of codes."""
        job, share = self.job, self.nonzero_share
        sizes = max(self._parts("sparse")[0], key=sum)
        wire = wires.choose("sparse", sizes, job.num_members, job.num_local)
        own = wires.trit_shares(share, job.num_local)
        units = sum(map(compress, own)) + (1.0 if job.num_local > 1 else 0.0)
        if wire.num_messages == 2:
            return units + job.num_members * sum(map(decompress, own))
        sums = wires.trit_shares(share, job.num_members * job.num_local)
        # Each adds one chunk and writes its streams; all read those of all chunks.
        units += sum(map(decompress, own)) + 1.7
        return units + sum(compress(s) / job.num_members + decompress(s) for s in sums)

    def _parts(self, mode):
        """Sizes of the ternary gradients, bucket by bucket, and of those that stay float."""
        if mode == "float32":
            return [], [*sum(self.job.buckets, ()), *self.job.floats]
        if self.job.buckets:
            return self.job.buckets, self.job.floats
        positions = exchange.buckets(self.job.floats)
        return [[self.job.floats[i] for i in bucket] for bucket in positions], []


def seconds_of_doubling(clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds an element that `x * 2` takes on a large array, as a clock tells them."""
    numbers = tf.zeros([2**22])
    double = tf.function(lambda x: x * 2, autograph=False)
    taken = []
    for _ in range(5):
        start = clock()
        double(numbers)
        taken.append(clock() - start)
    return min(taken) / 2**22
