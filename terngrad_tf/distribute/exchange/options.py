"""`ExchangeOptions`: how gradients are rounded, sent and measured."""

import dataclasses
import typing
from typing import Any

from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.common.options import check_options, documented, option
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.quantization import Quantization

# The word for `grad_bits`, and for the `sync_every` of `DiLoCo`.
AUTO = "auto"


def _is_quantization(name, value):
    check(isinstance(value, Quantization), name, "must be a `Quantization`", value)


def _is_wire(name, value):
    check(value in wires.WIRES, name, f"must be one of {wires.WIRES}", value)


def _is_bool_or_auto(name, value):
    check(isinstance(value, bool) or value == "auto", name, 'must be True, False or "auto"', value)


def _is_freq(name, value):
    check(is_integer(value, 0), name, "must be a positive integer or 0 (never)", value)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExchangeOptions:
    """The options of `TernaryAllReduce`, whose docstring says more.

    Raises:
        ValueError: an argument is out of range, or the wire cannot carry these codes.
    """

    quantization: Quantization = option(
        Quantization(), "How gradients are rounded.", _is_quantization, shared=False
    )
    chooses_mode: bool = option(False, 'Whether `grad_bits` is "auto".', shared=False)
    wire: str = option("auto", "How codes travel.", _is_wire)
    sparse_as_dense: bool | str = option(
        "auto", "How the gradients of embeddings travel.", _is_bool_or_auto
    )
    telemetry_freq: int = option(0, "Steps between comparisons with float gradients.", _is_freq)
    # Statistics are local.
    statistics_freq: int = option(0, "Steps between records of the codes.", _is_freq, shared=False)

    def __post_init__(self) -> None:
        check_options(self)
        quantization = self.quantization
        if self.chooses_mode:
            rule = f'must be "auto" with grad_bits="{AUTO}", which chooses the wire, too'
            check(self.wire == "auto", "wire", rule, self.wire)
            check(
                quantization.grad_bits == 1 and quantization.rotate,
                "quantization",
                "must set none of grad_bits, rotate=False and bits_per_element with"
                f' grad_bits="{AUTO}", which chooses among codes of rotated gradients',
                quantization,
            )
        budget = quantization.bits_per_element
        check(
            budget is None or self.wire in ("auto", *wires.STREAMS),
            "wire",
            f"must be one of {('auto', *wires.STREAMS)} with bits_per_element={budget}",
            self.wire,
        )
        check(
            quantization.grad_bits == 1 or self.wire not in wires.STREAMS,
            "wire",
            f"must be none of {wires.STREAMS}, which are for ternary gradients, with"
            f" grad_bits={quantization.grad_bits}; grad_bits=1 takes it",
            self.wire,
        )
        check(
            not quantization.rotate or self.wire not in wires.STREAMS,
            "wire",
            f"must be none of {wires.STREAMS}, which live from codes that are 0, with rotate=True;"
            " rotate=False, --norotate of the programs, takes it",
            self.wire,
        )


def quantization_of(grad_bits: int | str | None, quantization: Any, wire: str) -> Quantization:
    """Returns the `Quantization` that a user describes.

    Raises:
        ValueError: both `grad_bits` and `quantization` are given.
    """
    bits = None if grad_bits == AUTO else typing.cast("int | None", grad_bits)
    if quantization is None:
        # Rotated codes have too few zeros for streams.
        rotate = False if wire in wires.STREAMS else None
        return Quantization(grad_bits=1 if bits is None else bits, rotate=rotate)
    rule = "must not be given together with `quantization`, which takes it"
    check(bits is None, "grad_bits", rule, bits)
    return quantization
