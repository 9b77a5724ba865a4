"""Codes of the gradients that a worker pushes to a parameter server."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.common.arguments import check
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES
from terngrad_tf.distribute.exchange.wires import streams

PUSH_WIRES = ("auto", "sparse")
# Words of an int64 number.
_STEP_WORDS = 2


def check_wire(wire: str, quantization: Quantization) -> None:
    """Raises ValueError unless the wire can carry the codes of a quantization."""
    check(wire in PUSH_WIRES, "wire", f"must be one of {PUSH_WIRES}", wire)
    check(
        quantization.grad_bits == 1 or wire == "auto",
        "wire",
        f"must be 'auto' with grad_bits={quantization.grad_bits}; grad_bits=1 takes streams",
        wire,
    )
    check(
        not quantization.rotate or wire == "auto",
        "wire",
        "must be 'auto' where gradients are rotated, as by default; rotate=False takes it",
        wire,
    )


class PushCodec:
    """Packs the gradients of one server's variables on a worker, and unpacks them on the server.

    A gradient g is rounded without bias to `s * t / L`, t in -L..L, by this worker's own scales s.
    L is the quantization's `levels`, 1 for ternary codes.

    Rotated gradients have a scale for each block, see `terngrad_tf.ternary.rotation`; the step
    travels with the codes, because servers need it to rotate back. With `rotate=False` each tensor
    has one scale:

        s = min(clip_factor * std(g), max|g|),   t = floor(clip(g / s, -1, 1) * L + u)

    A push has packed codes, or a stream of the nonzero codes; scales; and float gradients.

    Example:
    >>> quantization = terngrad_tf.distribute.Quantization(rotate=False, clip_factor=0)
    >>> codec = PushCodec([[3]], [0], [0], quantization, num_workers=1)
    >>> codec.decode(codec.encode([tf.constant([2.0, 0.0, -2.0])], 0, 0))[0].numpy().tolist()
    [2.0, 0.0, -2.0]

    Args:
        indices: position of each variable in the whole model; selects random bits.
        wire: "auto" sends words, "sparse" sends streams of ternary codes that are not rotated.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        ternary_positions: Sequence[int],
        indices: Sequence[int],
        quantization: Quantization,
        num_workers: int,
        wire: str = "auto",
    ) -> None:
        check_wire(wire, quantization)
        self._shapes = [tf.TensorShape(shape) for shape in shapes]
        self._quantization = quantization
        self._num_workers = num_workers
        self._ternary = list(ternary_positions)
        self._exact = [i for i in range(len(shapes)) if i not in set(self._ternary)]
        self._indices = [indices[i] for i in self._ternary]
        self._is_sparse = wire == "sparse"
        self._base = streams.BASE if self._is_sparse else 2 * quantization.levels + 1
        rounded = [self._shapes[i] for i in self._ternary]
        self._rotation: Any = quantization.rotation(rounded, 1) if rounded else None
        sizes = [shape.num_elements() for shape in rounded]
        num_scales = len(sizes)
        if self._rotation:
            sizes, num_scales = self._rotation.sizes, self._rotation.num_blocks
        self._sizes = sizes
        self._num_words = sum(ternary.num_words(size, self._base) for size in sizes)
        self._num_floats = num_scales + sum(self._shapes[i].num_elements() for i in self._exact)

    @property
    def num_bytes(self) -> int:
        """Payload bytes of a push; with streams, about the maximum."""
        words = self._num_words + (_STEP_WORDS if self._rotation else 0)
        return WORD_BYTES * (words + self._num_floats)

    def num_bytes_of(self, packed: Any) -> tf.Tensor:
        """Payload bytes of a result of `encode`, an int64 scalar."""
        return WORD_BYTES * (tf.size(packed[0], tf.int64) + self._num_floats)

    def encode(self, gradients: Sequence[Any], step: Any, worker: Any) -> Any:
        """Packs T float32 gradients; step and worker select random bits.

        `step` is the number of steps done at the worker's pull.

        Returns:
            Tuple of int32 codes `[words]`, of no static shape for streams; float32 scales
            `[ternary gradients]`, or `[blocks]` if rotated; and a list of the float gradients.
        """
        exact = [gradients[i] for i in self._exact]
        if not self._ternary:
            return tf.zeros([0], tf.int32), tf.zeros([0], tf.float32), exact
        rounded = [gradients[i] for i in self._ternary]
        encode = self._encode_rotated if self._rotation else self._encode_plain
        return *encode(rounded, step, worker), exact

    def decode(self, packed: tf.Tensor) -> Any:
        """Unpacks a result of `encode` to T float32 tensors."""
        words, scales, exact = packed
        gradients = dict(zip(self._exact, exact, strict=True))
        if self._ternary:
            decode = self._decode_rotated if self._rotation else self._decode_plain
            gradients |= dict(zip(self._ternary, decode(words, scales), strict=True))
        return [gradients[i] for i in range(len(self._shapes))]

    def _encode_plain(self, gradients, step, worker):
        scales = self._quantization.local_scales(gradients)
        words = self._words(gradients, scales, step, worker, self._indices)
        return ternary.compress(words) if self._is_sparse else words, scales

    def _decode_plain(self, words, scales):
        words = ternary.decompress(words, self._num_words) if self._is_sparse else words
        shapes = [self._shapes[i] for i in self._ternary]
        return self._values(words, self._quantization.units(scales), shapes)

    def _encode_rotated(self, gradients, step, worker):
        measured = self._quantization.local_scales(gradients)
        scales = measured[0]
        vectors = self._rotation.rotate(gradients, measured, scales, **self._signs(step))
        # A server's vectors take the random bits of its first variables.
        tensors = self._quantization.indices_of_vectors(self._indices[0], len(vectors))
        words = self._words(vectors, tf.ones([len(vectors)]), step, worker, tensors)
        return tf.concat([words, tf.bitcast(tf.cast(step, tf.int64), tf.int32)], 0), scales

    def _decode_rotated(self, words, scales):
        words, step = tf.split(words, [self._num_words, _STEP_WORDS])
        signs = self._signs(tf.bitcast(step, tf.int64))
        ones, shapes = tf.ones([len(self._sizes)]), [[size] for size in self._sizes]
        vectors = self._values(words, ones, shapes)
        dtypes = [tf.float32] * len(self._ternary)
        return self._rotation.rotate_back(vectors, scales, dtypes, **signs)

    def _words(self, tensors, scales, step, worker, indices):
        return self._quantization.encode(
            tensors,
            scales,
            step=step,
            tensors=indices,
            replica=worker,
            num_replicas=self._num_workers,
            base=self._base,
        )

    def _values(self, words, units, shapes):
        return ternary.decode(
            words[tf.newaxis],
            units,
            shapes,
            [tf.float32] * len(shapes),
            base=self._base,
            total_bias=self._quantization.levels,
        )

    def _signs(self, step):
        return {"seed": self._quantization.seed, "step": step, "tensor": self._indices[0]}
