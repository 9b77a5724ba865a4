"""Keras' optimizers in NumPy, one step after the other, with and without the noise of rounding.

By the definition: an average of squares that an update divides by is first made smaller by the
average of the noise's variance, and never below a tenth of itself. Noise is given for each element.
"""

import numpy as np


def less(squares, noise):
    return np.maximum(squares - noise, 0.1 * squares)


def adam(w, steps, rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=False, kind="adam"):
    m, v, noise, largest, product = 0.0, 0.0, 0.0, 0.0, 1.0
    for t, (g, n) in enumerate(steps, 1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        noise = beta_2 * noise + (1 - beta_2) * n
        seen = largest = np.maximum(largest, less(v, noise)) if amsgrad else less(v, noise)
        if kind == "nadam":
            now, after = (beta_1 * (1 - 0.5 * 0.96**k) for k in (t, t + 1))
            product *= now
            mean = after * m / (1 - product * after) + (1 - now) * g / (1 - product)
            w = w - rate * mean / (np.sqrt(seen / (1 - beta_2**t)) + epsilon)
        else:
            scaled = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
            w = w - scaled * m / (np.sqrt(seen) + epsilon)
    return w, {"velocity": v}
