"""Quasi-Newton directions in a few dimensions, as pure functions."""

import tensorflow as tf

# Minimum cosine between a step and the change of the gradient along it, by which the update
# divides. Between mini-batches, it is near zero by chance; on a quadratic bowl, it is at least 2 /
# sqrt(condition).
MIN_COSINE = 1e-3


def update_inverse_hessian(
    inverse_hessian: tf.Tensor, step: tf.Tensor, gradient_change: tf.Tensor
) -> tf.Tensor:
    """Returns the BFGS update B' [k, k] of an approximate inverse Hessian.

        B' = (I - r s y^T) B (I - r y s^T) + r s s^T,   r = 1 / (y^T s)

    B is kept if `y^T s` is not clearly positive (a cosine below `MIN_COSINE`, a zero step, or
    non-finite values), so that B' stays positive definite.

    Args:
        inverse_hessian: B, symmetric and positive definite.
        step: s [k], the difference of the last two points.
        gradient_change: y [k], the difference of their gradients.

    Source: Nocedal and Wright, "Numerical Optimization", 2nd edition, equation (6.17).
    """
    curvature = tf.tensordot(step, gradient_change, 1)
    least = MIN_COSINE * tf.norm(step) * tf.norm(gradient_change)
    usable = tf.logical_and(curvature > least, tf.math.is_finite(least))
    rate = 1.0 / tf.where(usable, curvature, 1.0)
    product = tf.linalg.matvec(inverse_hessian, gradient_change)
    cross = step[:, tf.newaxis] * product[tf.newaxis, :]
    quadratic = rate * (1.0 + rate * tf.tensordot(gradient_change, product, 1))
    updated = (
        inverse_hessian
        - rate * (cross + tf.transpose(cross))
        + quadratic * step[:, tf.newaxis] * step[tf.newaxis, :]
    )
    usable = tf.logical_and(usable, tf.reduce_all(tf.math.is_finite(updated)))
    return tf.where(usable, updated, inverse_hessian)


def descent_direction(
    inverse_hessian: tf.Tensor, gradient: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the quasi-Newton direction `-B g`, or `-g` with B = I if `-B g` does not descend.

    Returns:
        The direction [k], its slope (direction times gradient, not positive) and B or I.
    """
    direction = -tf.linalg.matvec(inverse_hessian, gradient)
    slope = tf.tensordot(direction, gradient, 1)
    descends = slope < 0.0
    return (
        tf.where(descends, direction, -gradient),
        tf.where(descends, slope, -tf.tensordot(gradient, gradient, 1)),
        tf.where(descends, inverse_hessian, tf.eye(gradient.shape[0], dtype=gradient.dtype)),
    )
