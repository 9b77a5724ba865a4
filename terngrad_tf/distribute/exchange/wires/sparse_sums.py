"""Sends entropy-coded chunks of codes to the members that add them, and sums to all."""

from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.distribute.exchange.wires.base import Sums, fill_up
from terngrad_tf.distribute.exchange.wires.sparse import Sparse


class SparseSums(Sparse):
    """`Sparse` for many members: each adds one chunk, and sends the sums to all as trits.

    Chunk m holds every M-th word: chunks have similar streams although layers differ.
    """

    num_messages = 4

    @property
    def chunk_words(self) -> int:
        """Words of the chunk that one member adds up."""
        return -(-self.num_words(streams.BASE) // self.num_members)

    @property
    def num_sum_trits(self) -> int:
        """Streams of a member on the way back."""
        return ternary.num_trits(self.num_replicas)

    @property
    def read_share(self) -> float:
        """Share of the streams that a member reads: all but its own."""
        return 1 - 1 / self.num_members

    @property
    def received_words(self) -> float:
        """Upper bound, at two bits per element and trit."""
        lengths = self.num_members * self.num_trits + self.num_sum_trits
        streams_words = (self.num_trits + self.num_sum_trits) * (2 + self.chunk_words)
        return (self.num_members - 1) * (streams_words + lengths)

    def expected_words(self, nonzero_share: float) -> float:
        there, back = (
            streams.expected_length(self.chunk_words, nonzero_share, num_codes)
            for num_codes in (self.num_local, self.num_replicas)
        )
        others = (self.num_members - 1) * self.num_trits
        return (self.num_members - 1) * (there + back + others)

    def work(self, nonzero_share: float) -> float:
        own = streams.trit_shares(nonzero_share, self.num_local)
        adding = self.read_share * sum(map(streams.decompression, own)) + 1.7
        # Each member adds one chunk and writes its streams; all read the streams of all chunks.
        sums = sum(
            streams.compression(share) / self.num_members
            + self.read_share * streams.decompression(share)
            for share in streams.trit_shares(nonzero_share, self.num_replicas)
        )
        return self._sending(own) + adding + sums

    def sum(self, bucket: Any) -> Sums:
        processes, members = bucket.processes, self.num_members
        if processes:
            chunks = [self.chunks(words) for words in tf.unstack(self.trits(bucket))]
            codes, received = streams.all_to_all(processes, chunks)
            sums, received_sums = streams.all_gather(processes, self.added(codes))
            received += received_sums
            sums = tf.reshape(sums, [members, self.num_sum_trits, self.chunk_words])
            words = tf.stack([self.joined(place) for place in tf.unstack(sums, axis=1)])
            weights = ternary.trit_values(self.num_sum_trits)
            tensors = bucket.decode(
                words, base=streams.BASE, weights=weights, total_bias=sum(weights)
            )
        else:
            # As if each replica were a process.
            chunks = [self.chunks(words) for words in bucket.words_of_replicas(streams.BASE)]
            of_owners = tf.stack(chunks, axis=1)
            sums = tf.stack([self.added(codes) for codes in tf.unstack(of_owners)])
            received = self.received_of(of_owners, sums)
            tensors = bucket.sum_codes()
        return Sums(tensors, tf.cast(received, tf.float32))

    def received_of(self, codes: tf.Tensor, sums: tf.Tensor) -> tf.Tensor:
        """Returns the words that each member receives if every replica is a member.

        Args:
            codes: int32 `[owners, members, C]`, from members to each owner.
            sums: int32 `[owners, streams, C]`, from owners to all.
        """
        there, back = streams.lengths(codes), streams.lengths(sums)
        longest = streams.message_length(there[..., tf.newaxis]) + streams.message_length(back)
        return (self.num_members - 1) * (longest + self.num_members + sums.shape[1])

    def added(self, codes: tf.Tensor) -> tf.Tensor:
        """Converts trits of all members, `[members * num_trits, C]`, to trits of their sums."""
        weights = ternary.trit_values(self.num_trits) * self.num_members
        return ternary.sum_to_trits(codes, self.num_replicas, weights=weights)

    def chunks(self, words: tf.Tensor) -> Any:
        """`[W]` -> `[members, chunk_words]`, padded with words of codes that are 0."""
        words = fill_up(words, self.num_members * self.chunk_words, streams.BASE, digit=1)
        return tf.transpose(tf.reshape(words, [self.chunk_words, self.num_members]))

    def joined(self, chunks: tf.Tensor) -> tf.Tensor:
        """Inverse of `chunks`."""
        return tf.reshape(tf.transpose(chunks), [-1])[: self.num_words(streams.BASE)]
