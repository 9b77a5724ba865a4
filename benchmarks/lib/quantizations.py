"""The `Quantization` of a way to train, also one that no option of the library gives."""

import terngrad_tf


class _TernaryAlone(terngrad_tf.Quantization):
    """The default without the finer codes that the strategy takes for some gradients."""

    def finer(self, bits):
        return self


def quantization(*, alone=False, **options):
    """Returns the `Quantization` of options; with `alone`, no gradient has finer codes than these.

    Example:
    >>> quantization(alone=True).finer(4).grad_bits, quantization().finer(4).grad_bits
    (1, 4)
    """
    kind = _TernaryAlone if alone else terngrad_tf.Quantization
    return kind(**options)
