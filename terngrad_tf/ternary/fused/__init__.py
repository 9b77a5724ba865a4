"""The same maths as compiled loops: rounding, packing and adding in one pass over the gradients.

`ternary`'s readable modules define each function; results are equal bit for bit.
"""

__all__ = []
