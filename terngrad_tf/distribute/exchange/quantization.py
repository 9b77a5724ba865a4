"""Which gradients are rounded, and how."""

import dataclasses
import functools
import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.arguments import check, is_integer
from terngrad_tf.clip_factors import RULE as CLIP_RULE
from terngrad_tf.clip_factors import is_clip_factor
from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.grad_bits import GRAD_BITS, RULE, levels_of_bits

TERNARY_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
LOGITS, AUXILIARY = "logits", "aux"
# Of `bits_per_element`: what streams of zeros nearly take, and what words take.
BITS_RANGE = 0.02, 1.6
# Above the number of vectors that tensors which are rotated together make.
_MOST_VECTORS = 32
# The noise of larger scales might be no float32.
_LARGEST_NOISY_SCALE = 2.0**56


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantization:
    """Selects the gradients of a model that are rounded to ternary or finer codes, and rounds them.

    The random bits depend on `seed`, the step, the variable's position in the model and the element
    only.

    Example:
    >>> quantization = Quantization(min_size=2)
    >>> quantization.ternary_positions([tf.zeros([3]), tf.zeros([1])], ["kernel", "bias"])
    [0]

    Args:
        grad_bits: 1 for ternary gradients; 2 for codes of five values, -2 to 2, which take 2.5
            bits; b from 3 to 8 for codes of b bits, whole numbers from `-levels` to `levels =
            2**(b-1) - 1`; 32 for float gradients: none is selected. Default 1.
        rotate: whether gradients are rotated before they are rounded, see
            `terngrad_tf.ternary.rotation`, so that scales follow from `grad_bits` alone and suit
            all gradients. False is the rule of TernGrad's paper. Default None: True, but False
            with `bits_per_element`, and for wires of streams.
        clip_factor: with `rotate=False` only: c of the scale `min(c * std(g), max|g|)`; 0 for
            `max|g|`;
            "auto" for a scale that weighs what clipping takes away against what rounding adds, see
            `terngrad_tf.ternary.ScaleRule`: better where many replicas train with SGD, since no
            mean over them gives back what each of them clips. Default None: 2.5 for ternary
            gradients, "auto" for finer codes, which need less clipping.
        bits_per_element: how long the stream of a replica's codes may be, as is to be expected:
            the scale of a tensor is raised until so few of its codes are not 0. That is unbiased
            still, with more variance. `DiLoCo` meets it by error feedback instead. From 0.02 to
            1.6; needs ternary gradients, which are not rotated then, as that leaves few codes 0,
            and a wire of streams, which "auto" then is. Default None: as long as the scale makes
            it.
        min_size: gradients with fewer elements stay float. Default 1 (none).
        quantize_logits: whether the gradients of the logits layer are rounded too. The layer is
            known by its name: a component of the variable's path contains "logits" and not "aux",
            as an auxiliary head's does, which is rounded in any case. Default True.
        rounding: "correlated" (replicas share random bits, less variance) or "independent" (as in
            the paper). Default "correlated".
        seed: integer that selects the random bits. Default 0.

    Raises:
        ValueError: an argument is out of range.
    """

    grad_bits: int = 1
    rotate: bool | None = None
    clip_factor: float | str | None = None
    bits_per_element: float | None = None
    min_size: int = 1
    quantize_logits: bool = True
    rounding: str = "correlated"
    seed: int = 0

    def __post_init__(self) -> None:
        def require(holds, name, rule):
            check(holds, name, rule, getattr(self, name))

        require(
            is_integer(self.grad_bits) and self.grad_bits in GRAD_BITS,
            "grad_bits",
            RULE,
        )
        require(isinstance(self.rotate, bool | None), "rotate", "must be a bool or None")
        if self.rotate is None:
            object.__setattr__(self, "rotate", self.bits_per_element is None)
        for option in ("clip_factor", "bits_per_element"):
            require(
                not self.rotate or getattr(self, option) is None,
                option,
                "must be None where gradients are rotated, as by default; rotate=False takes it",
            )
        if self.clip_factor is None and not self.rotate:
            object.__setattr__(self, "clip_factor", 2.5 if self.levels == 1 else ternary.AUTO)
        require(
            self.clip_factor is None or is_clip_factor(self.clip_factor), "clip_factor", CLIP_RULE
        )
        require(
            self.bits_per_element is None
            or isinstance(self.bits_per_element, int | float)
            and BITS_RANGE[0] <= self.bits_per_element <= BITS_RANGE[1],
            "bits_per_element",
            f"must be a number from {BITS_RANGE[0]} to {BITS_RANGE[1]}, or None",
        )
        require(
            self.bits_per_element is None or self.levels == 1,
            "bits_per_element",
            f"must be None with grad_bits={self.grad_bits}, whose codes are too fine for streams",
        )
        require(is_integer(self.min_size, 1), "min_size", "must be a positive integer")
        require(isinstance(self.quantize_logits, bool), "quantize_logits", "must be a bool")
        roundings = ternary.ROUNDINGS
        require(self.rounding in roundings, "rounding", f"must be one of {roundings}")
        is_32_bit = is_integer(self.seed) and -(2**31) <= self.seed < 2**31
        require(is_32_bit, "seed", "must be a 32-bit integer")
        if not isinstance(self.clip_factor, str | None):
            object.__setattr__(self, "clip_factor", float(self.clip_factor))

    @property
    def levels(self) -> int:
        """L: codes are whole numbers from -L to L. 1 for ternary gradients."""
        return levels_of_bits(self.grad_bits)

    def check_logits(self, paths: Sequence[str]) -> None:
        """Raises ValueError where `quantize_logits=False` finds no logits.

        Args:
            paths: paths of all variables of an optimizer, as in `keras.Variable.path`.
        """
        if (
            self.grad_bits != 32
            and not self.quantize_logits
            and not any(map(self.is_of_logits, paths))
        ):
            raise ValueError(
                "`quantize_logits=False` needs a layer whose name contains 'logits'. Received"
                f" variables: {', '.join(paths)}"
            )

    @staticmethod
    def is_of_logits(path: str) -> bool:
        """Whether a variable's path tells that it is one of the logits layer."""
        return any(LOGITS in part and AUXILIARY not in part for part in path.split("/"))

    def ternary_positions(self, gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
        """Positions of the gradients that are to be rounded.

        Args:
            gradients: list of T tensors, `tf.TensorSpec`s or `tf.IndexedSlices`.
            paths: T variable paths, as in `keras.Variable.path`.
        """
        if self.grad_bits == 32:
            return []
        return [
            position
            for position, gradient in enumerate(gradients)
            if not isinstance(gradient, tf.IndexedSlices)
            and gradient.dtype in TERNARY_DTYPES
            and gradient.shape.is_fully_defined()
            and max(gradient.shape.num_elements(), 1) >= self.min_size
            and (self.quantize_logits or not self.is_of_logits(paths[position]))
        ]

    def noisy_positions(self, gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
        """`ternary_positions`, where the variance that rounding adds is known; else none."""
        return self.ternary_positions(gradients, paths) if self.rotate else []

    def rotation(
        self, shapes: Sequence[Sequence[int]], num_replicas: int
    ) -> "ternary.Rotation | None":
        """`ternary.Rotation` of tensors of these shapes; None where they are not rotated.

        Args:
            shapes: T static shapes.
            num_replicas: whose codes are added.
        """
        if not self.rotate:
            return None
        return _rotation(tuple(map(tuple, shapes)), self.levels, num_replicas)

    def local_scales(self, gradients: Sequence[Any], num_replicas: int = 1) -> tf.Tensor:
        """What rounding must know of one replica's gradients.

        Args:
            gradients: list of T tensors.
            num_replicas: over which reduced gradients are the mean.

        Returns:
            `ternary.local_scales`, `[T]`; of rotated ones what `ternary.Rotation.measure` tells,
            `[2, blocks]`.
        """
        rotation = self.rotation([g.shape for g in gradients], num_replicas)
        if rotation:
            return rotation.measure(gradients)
        return ternary.local_scales(
            gradients,
            typing.cast("float | str", self.clip_factor),
            num_replicas=num_replicas,
            levels=self.levels,
            nonzero_share=self.largest_nonzero_share,
        )

    def noise(self, scales: tf.Tensor, num_replicas: int) -> tf.Tensor:
        """The variance that rounding adds to each element of a block of summed rotated gradients.

        Of replicas whose blocks are all as large as the largest: it is the most that can be.

        Args:
            scales: float32 tensor of shape [blocks], shared by all replicas.
            num_replicas: N.

        Returns:
            Float32 tensor of shape [blocks], finite.
        """
        of_replica = ternary.rounding_noise(self.levels, num_replicas, self.rounding)
        # Of gradients whose squares are infinite.
        scales = tf.minimum(scales, _LARGEST_NOISY_SCALE)
        return tf.constant(num_replicas * of_replica, tf.float32) * tf.square(scales)

    def indices_of_vectors(self, first: int, count: int) -> list[int]:
        """Integers that select the random bits of rotated vectors of tensors that travel together.

        Args:
            first: the first tensor's.
            count: number of vectors.
        """
        return [_MOST_VECTORS * first + number for number in range(count)]

    @property
    def largest_nonzero_share(self) -> float:
        """The share of codes that are not 0 for which `bits_per_element` has room; at most 1."""
        bits = self.bits_per_element
        return 1.0 if bits is None else streams.nonzero_share(bits)

    @property
    def of_one_size(self) -> "Quantization":
        """As this one, for tensors whose elements are 0 or of one size: it is their scale."""
        return dataclasses.replace(self, clip_factor=0.0, bits_per_element=None)

    def encode(self, gradients: Sequence[Any], scales: tf.Tensor, **options: Any) -> Any:
        """`ternary.encode` with this rounding, levels and seed."""
        return ternary.encode(gradients, scales, **self._how(), **options)

    def sum_codes(self, gradients: Sequence[Any], scales: tf.Tensor, **options: Any) -> Any:
        """`ternary.sum_codes` with this rounding, levels and seed."""
        return ternary.sum_codes(gradients, scales, **self._how(), **options)

    def units(self, scales: tf.Tensor) -> tf.Tensor:
        """What a code of 1 stands for at these scales."""
        # Not a division, which in graphs TensorFlow makes such a product, rounded differently.
        return scales if self.levels == 1 else scales * tf.constant(1 / self.levels, scales.dtype)

    def _how(self):
        return {"rounding": self.rounding, "levels": self.levels, "seed": self.seed}


@functools.cache
def _rotation(shapes, levels, num_replicas):
    return ternary.Rotation(shapes, levels, num_replicas)
