"""Keras' optimizers in NumPy, step by step, with and without the noise of rounding.

Before an update divides by an average of squares, it subtracts the average of the noise's
variance. At least a tenth of the average of squares remains. Noise is given for each element.
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


def lamb(w, steps, rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    m, v, noise = 0.0, 0.0, 0.0
    for t, (g, n) in enumerate(steps, 1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        noise = beta_2 * noise + (1 - beta_2) * n
        seen = less(v, noise) / (1 - beta_2**t)
        update = m / (1 - beta_1**t) / (np.sqrt(seen) + epsilon)
        # The variance of an average of t steps' noise.
        share = sum(((1 - beta_1) * beta_1**k) ** 2 for k in range(t)) / (1 - beta_1**t) ** 2
        shares = np.divide(share * n, seen, out=np.zeros_like(seen), where=seen > 0)
        length = np.sqrt(less(np.sum(update**2), np.sum(shares)))
        ratio = np.linalg.norm(w) / length if np.any(w) else 1.0
        w = w - rate * ratio * update
    return w, {"velocity": v}


def rmsprop(w, steps, rate=0.01, rho=0.9, epsilon=1e-7, momentum=0.0, centered=False):
    v, mean, noise, noise_of_mean, moved = 0.0, 0.0, 0.0, 0.0, 0.0
    for g, n in steps:
        v = rho * v + (1 - rho) * g**2
        mean = rho * mean + (1 - rho) * g
        noise = rho * noise + (1 - rho) * n
        noise_of_mean = rho**2 * noise_of_mean + (1 - rho) ** 2 * n
        seen = less(v - mean**2, noise - noise_of_mean) if centered else less(v, noise)
        moved = momentum * moved + rate * g / np.sqrt(seen + epsilon)
        w = w - moved
    return w, {"velocity": v}


def adagrad(w, steps, rate=0.01, start=0.1, epsilon=1e-7):
    squares, noise = 0.0, 0.0
    for g, n in steps:
        squares, noise = squares + g**2, noise + n
        w = w - rate * g / np.sqrt(start + less(squares, noise) + epsilon)
    return w, {"accumulator": start + squares}


def adamax(w, steps, rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    m, u, noise = 0.0, 0.0, 0.0
    for t, (g, n) in enumerate(steps, 1):
        m = beta_1 * m + (1 - beta_1) * g
        u = np.maximum(beta_2 * u, np.abs(g))
        noise = beta_2 * noise + (1 - beta_2) * n
        seen = np.sqrt(less(u**2, 3 * noise / (1 - beta_2**t)))
        w = w - rate / (1 - beta_1**t) * m / (seen + epsilon)
    return w, {"momentum": m, "norm": u}


def adafactor(w, steps, rate=0.01, decay=-0.8, epsilon_1=1e-30, epsilon_2=1e-3, threshold=1.0):
    axes = (-1, -2) if w.ndim > 1 else (None,)
    parts, noises = [0.0] * len(axes), [0.0] * len(axes)

    def mean(values, axis):
        return values if axis is None else values.mean(axis)

    for t, (g, n) in enumerate(steps, 1):
        step_size = min(rate, 1 / np.sqrt(t))
        step_size *= max(epsilon_2, np.sqrt(np.mean(w**2)))
        beta_2 = 1 - t**decay
        seen = []
        for k, axis in enumerate(axes):
            parts[k] = beta_2 * parts[k] + (1 - beta_2) * mean(g**2 + epsilon_1, axis)
            noises[k] = beta_2 * noises[k] + (1 - beta_2) * mean(n, axis)
            seen.append(less(parts[k], noises[k]) if t > 1 else parts[k])
        squares = seen[0]
        if len(seen) > 1:
            squares = (seen[0] / seen[0].mean(-1, keepdims=True))[:, None] * seen[1][None, :]
        update = g / np.sqrt(squares)
        size = np.sqrt(less(np.mean(update**2), np.mean(n / squares)))
        w = w - step_size * update / max(1.0, size / threshold)
    return w, {} if len(axes) > 1 else {"velocity": parts[0]}


def longer(squares, noise):
    return np.sqrt(squares / np.maximum(less(squares, noise), 1e-30))


def lion(w, steps, rate=0.01, beta_1=0.9, beta_2=0.99, block=1024):
    m, noise = np.zeros_like(w), 0.0
    for g, n in steps:
        direction = beta_1 * m + (1 - beta_1) * g
        of_direction = beta_1**2 * noise + (1 - beta_1) ** 2 * n
        flat, of_flat = direction.ravel().astype(np.float64), np.ravel(of_direction)
        starts = range(0, len(flat), block)
        factors = [longer(np.mean(flat[k : k + block] ** 2), of_flat[k]) for k in starts]
        factor = np.repeat(factors, block)[: len(flat)].reshape(w.shape)
        w = w - rate * factor * np.sign(direction)
        m = beta_2 * m + (1 - beta_2) * g
        noise = beta_2**2 * noise + (1 - beta_2) ** 2 * n
    return w, {"momentum": m}


def muon_factors(steps, beta=0.95, nesterov=True):
    """The factor of the rate in each step of Muon with orthogonal matrices."""
    m, noise, factors = 0.0, 0.0, []
    for g, n in steps:
        before, of_before = m, noise
        m, noise = beta * m + g, beta**2 * noise + n
        direction, of_direction = m, noise
        if nesterov:
            direction = (1 + beta) * g + beta**2 * before
            of_direction = (1 + beta) ** 2 * n + beta**4 * of_before
        factors.append(longer(np.sum(direction**2), np.sum(of_direction)))
    return factors


def sgd(w, steps, rate=0.01):
    return w - rate * sum(g for g, _ in steps), {}
