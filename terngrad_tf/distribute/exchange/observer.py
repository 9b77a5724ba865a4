"""What may be seen of an exchange of gradients: `Observer`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from terngrad_tf.distribute.exchange.buckets import Bucket


class Observer(Protocol):
    """Sees the moments of one exchange while a step is traced.

    A method may add operations to the step, and returns its argument or a replacement.
    """

    def floats_ready(self, gradients: Sequence[Sequence[Any]]) -> None:
        """The gradients that stay float exist: for each, a tensor of each local replica."""

    def floats_reduced(self, sums: Sequence[list[tf.Tensor]]) -> Sequence[list[tf.Tensor]]:
        """Their sums exist, for each gradient one a local device."""
        return sums

    def bucket_ready(self, bucket: Bucket) -> Bucket:
        """The gradients of a bucket and their local scales exist."""
        return bucket

    def scales_shared(self, bucket: Bucket) -> Bucket:
        """The bucket's shared scales exist, and the largest `told` of all processes."""
        return bucket

    def bucket_reduced(self, bucket: Bucket, sums: Sequence[Any]) -> Sequence[Any]:
        """The sums of the bucket's gradients exist, for each gradient one a local device."""
        return sums

    def done(self, sums: Mapping[int, Any], words: Sequence[tf.Tensor]) -> None:
        """All sums exist, by position; `words` counts the received words of streams."""


class Observers(Observer):
    """Several observers as one; none of them does nothing."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    def floats_ready(self, gradients: Sequence[Sequence[Any]]) -> None:
        for observer in self._observers:
            observer.floats_ready(gradients)

    def floats_reduced(self, sums: Sequence[list[tf.Tensor]]) -> Sequence[list[tf.Tensor]]:
        for observer in self._observers:
            sums = observer.floats_reduced(sums)
        return sums

    def bucket_ready(self, bucket: Bucket) -> Bucket:
        for observer in self._observers:
            bucket = observer.bucket_ready(bucket)
        return bucket

    def scales_shared(self, bucket: Bucket) -> Bucket:
        for observer in self._observers:
            bucket = observer.scales_shared(bucket)
        return bucket

    def bucket_reduced(self, bucket: Bucket, sums: Sequence[Any]) -> Sequence[Any]:
        for observer in self._observers:
            sums = observer.bucket_reduced(bucket, sums)
        return sums

    def done(self, sums: Mapping[int, Any], words: Sequence[tf.Tensor]) -> None:
        for observer in self._observers:
            observer.done(sums, words)
