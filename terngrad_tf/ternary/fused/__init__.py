"""The same maths as compiled loops: rounding, packing and adding in one pass over the gradients.

What each function computes is said by `ternary`'s readable modules; the tests compare them bit for
bit.
"""

__all__ = []
