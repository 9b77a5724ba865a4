"""Selects and rounds gradients: `Quantization`."""

import dataclasses
import functools
import hashlib
import typing
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.clip_factors import default_factor
from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.common.options import documented, option
from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.quantization_options import FLOAT_BITS, QuantizationOptions

TERNARY_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
LOGITS, AUXILIARY = "logits", "aux"
# Exceeds the number of vectors of tensors that are rotated together.
_MOST_VECTORS = 32
# Steps for which processes compare `float_steps`.
_COMPARED_STEPS = (*range(128), *(2**power + i for power in range(8, 24) for i in (-1, 0, 1)))
_MOST_CHANGES = 4
# The noise of larger scales might overflow float32.
_LARGEST_NOISY_SCALE = 2.0**56


def _is_seed(name, value):
    check(is_integer(value) and -(2**31) <= value < 2**31, name, "must be a 32-bit integer", value)


def _is_function(name, value):
    check(callable(value), name, "must be a function of the step or None", value)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantization(QuantizationOptions):
    """Selects gradients of a model and rounds them to ternary or finer codes.

    The random bits depend only on `seed`, the step, and the element's place: with rotation, among
    all that are rounded together, otherwise in its variable, whose position in the model counts.

    Example:
    >>> quantization = Quantization(min_size=2)
    >>> quantization.ternary_positions([tf.zeros([3]), tf.zeros([1])], ["kernel", "bias"])
    [0]

    Raises:
        ValueError: an argument is out of range.
    """

    seed: int = option(0, "Integer that selects the random bits.", _is_seed)
    float_steps: Callable[[tf.Tensor], Any] | None = option(
        None,
        "Function of the optimizer's step (int64 scalar tensor) that returns a bool scalar tensor, "
        "converted by AutoGraph. If it returns True, the step exchanges gradients exactly as with "
        "grad_bits=32. None: no step does.",
        _is_function,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotate is None:
            object.__setattr__(self, "rotate", self.bits_per_element is None)
        for name in ("clip_factor", "bits_per_element"):
            value = getattr(self, name)
            rule = "must be None where gradients are rotated, as by default; rotate=False takes it"
            check(not self.rotate or value is None, name, rule, value)
        if self.clip_factor is None and not self.rotate:
            object.__setattr__(self, "clip_factor", default_factor(self.levels))
        is_float = self.grad_bits == FLOAT_BITS
        why = "which sends floats" if is_float else "whose codes are too fine for streams"
        check(
            self.bits_per_element is None or self.grad_bits == 1,
            "bits_per_element",
            f"must be None with grad_bits={self.grad_bits}, {why}; grad_bits=1 takes it",
            self.bits_per_element,
        )
        if not isinstance(self.clip_factor, str | None):
            object.__setattr__(self, "clip_factor", float(self.clip_factor))

    def check_logits(self, paths: Sequence[str]) -> None:
        """Raises ValueError if `quantize_logits=False` finds no logits.

        Args:
            paths: paths of all variables, as in `keras.Variable.path`.
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
        """Returns True if a variable's path is in the logits layer."""
        return any(LOGITS in part and AUXILIARY not in part for part in path.split("/"))

    def ternary_positions(self, gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
        """Returns the positions of the gradients to round.

        Args:
            gradients: T tensors, `tf.TensorSpec`s or `tf.IndexedSlices`.
            paths: T variable paths, as in `keras.Variable.path`.
        """
        return self._positions(gradients, paths, is_sparse=False)

    def row_positions(self, gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
        """Returns the positions of the sparse gradients to round, `tf.IndexedSlices`.

        There are none without rotation: TernGrad's one scale for a tensor suits no rows.

        Args:
            gradients: T tensors or `tf.IndexedSlices`.
            paths: T variable paths, as in `keras.Variable.path`.
        """
        return self._positions(gradients, paths, is_sparse=True) if self.rotate else []

    def _positions(self, gradients, paths, is_sparse):
        if self.grad_bits == 32:
            return []
        return [
            position
            for position, gradient in enumerate(gradients)
            if isinstance(gradient, tf.IndexedSlices) == is_sparse
            and gradient.dtype in TERNARY_DTYPES
            and gradient.shape.is_fully_defined()
            and max(gradient.shape.num_elements(), 1) >= self.min_size
            and (self.quantize_logits or not self.is_of_logits(paths[position]))
        ]

    def told_float_steps(self) -> str:
        """Returns which of some steps are float, as text that processes compare; "" for none.

        Example:
        >>> Quantization(float_steps=lambda step: step < 5).told_float_steps()
        'float from step 0, rounded from step 5'
        """
        if self.float_steps is None:
            return ""
        decide = tf.function(self.float_steps)

        @tf.function(autograph=False)
        def decide_all():
            def of_step(step):
                return tf.convert_to_tensor(decide(step), tf.bool)

            return tf.map_fn(
                of_step, tf.constant(_COMPARED_STEPS, tf.int64), fn_output_signature=tf.bool
            )

        with tf.init_scope():
            are_float = decide_all().numpy().tolist()
        changes = [
            f"{'float' if is_float else 'rounded'} from step {step}"
            for step, before, is_float in zip(
                _COMPARED_STEPS, [None, *are_float], are_float, strict=False
            )
            if is_float != before
        ]
        rest = changes[_MOST_CHANGES:]
        more = [hashlib.sha256("".join(rest).encode()).hexdigest()[:8]] if rest else []
        return ", ".join(changes[:_MOST_CHANGES] + more)

    def rotation(
        self, shapes: Sequence[Sequence[int]], num_replicas: int
    ) -> "ternary.Rotation | None":
        """Returns the `ternary.Rotation` of tensors of these shapes; None without rotation.

        Args:
            shapes: T static shapes.
            num_replicas: replicas whose codes are added.
        """
        if not self.rotate:
            return None
        return _rotation(tuple(map(tuple, shapes)), self.levels, num_replicas)

    def local_scales(self, gradients: Sequence[Any], num_replicas: int = 1) -> tf.Tensor:
        """Measures one replica's gradients for rounding.

        Args:
            gradients: T tensors.
            num_replicas: replicas over which reduced gradients are the mean.

        Returns:
            `ternary.local_scales`, `[T]`; with rotation, `ternary.Rotation.measure`, `[2, blocks]`.
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

    def noise_of_sums(self, scales: tf.Tensor, own: tf.Tensor, num_replicas: int) -> tf.Tensor:
        """Returns the variance that rounding adds to sums, in units of the squared scale.

        Assumes Gaussian blocks. An upper bound for processes with several replicas.

        Args:
            scales: float32 `[blocks]`, shared by all replicas.
            own: float32 `[members, blocks]`, the largest scales of each member.
            num_replicas: N.

        Returns:
            Float32 `[blocks]`.
        """
        scales = tf.minimum(scales, _LARGEST_NOISY_SCALE)
        how: dict[str, Any] = {"levels": self.levels, "rounding": self.rounding}
        return ternary.noise_of_sums(scales, own, num_replicas, **how)

    def noise(
        self, scales: tf.Tensor, of_sums: tf.Tensor, errors: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the variance that rounding adds to each element of summed rotated gradients.

        Args:
            scales: float32 `[blocks]`, shared by all replicas.
            of_sums: result of `noise_of_sums`.
            errors: float32 `[blocks]`: mean squared errors of the sums of codes, if rounded once
                more.

        Returns:
            Float32 `[blocks]`, finite.
        """
        if errors is not None:
            of_sums += errors * tf.constant(ternary.value_of_code(self.levels) ** 2, tf.float32)
        # Squares of large gradients may be infinite.
        return of_sums * tf.square(tf.minimum(scales, _LARGEST_NOISY_SCALE))

    def indices_of_vectors(self, first: int, count: int) -> list[int]:
        """Returns integers that select the random bits of a bucket's rotated vectors.

        Args:
            first: the first tensor's integer.
            count: number of vectors.
        """
        return [_MOST_VECTORS * first + number for number in range(count)]

    @property
    def largest_nonzero_share(self) -> float:
        """The largest share of non-zero codes within `bits_per_element`; at most 1."""
        bits = self.bits_per_element
        return 1.0 if bits is None else streams.nonzero_share(bits)

    def finer(self, bits: int) -> "Quantization":
        """Returns a copy with codes of these bits if its own are rotated and coarser, else itself.

        Args:
            bits: such as `SYMBOL_BITS`; 0 for no change.
        """
        is_coarser = self.rotate and self.grad_bits < bits
        return dataclasses.replace(self, grad_bits=bits) if is_coarser else self

    @property
    def of_one_size(self) -> "Quantization":
        """A copy for tensors whose elements are 0 or of one size, which is their scale."""
        return dataclasses.replace(self, clip_factor=0.0, bits_per_element=None)

    def encode(self, gradients: Sequence[Any], scales: tf.Tensor, **options: Any) -> Any:
        """`ternary.encode` with this rounding, levels and seed."""
        return ternary.encode(gradients, scales, **self._how(), **options)

    def sum_codes(self, gradients: Sequence[Any], scales: tf.Tensor, **options: Any) -> Any:
        """`ternary.sum_codes` with this rounding, levels and seed."""
        return ternary.sum_codes(gradients, scales, **self._how(), **options)

    def units(self, scales: tf.Tensor) -> tf.Tensor:
        """Returns the value of a code of 1 at these scales."""
        # TensorFlow's graphs turn a division into this product, rounded differently.
        return scales if self.levels == 1 else scales * tf.constant(1 / self.levels, scales.dtype)

    def _how(self):
        return {"rounding": self.rounding, "levels": self.levels, "seed": self.seed}


@functools.cache
def _rotation(shapes, levels, num_replicas):
    return ternary.Rotation(shapes, levels, num_replicas)
