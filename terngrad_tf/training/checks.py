"""Rules that several options keep."""

from terngrad_tf.training.errors import UserError


def positive(name, value):
    """Raises UserError unless `value` is an integer above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"`{name}` must be a positive integer. Received: {name}={value!r}")


def positive_or_none(name, value):
    """Raises UserError unless `value` is None or an integer above 0."""
    if value is not None:
        positive(name, value)


def at_least_zero(name, value):
    """Raises UserError if the number is below 0."""
    if value < 0:
        raise UserError(f"`{name}` must be at least 0. Received: {name}={value!r}")


def tower(name, value, num_nodes):
    """Raises UserError unless `value` is the number of one of `num_nodes` workers or -1."""
    if not -1 <= value < num_nodes:
        raise UserError(
            f"`{name}` must be the number of a worker, 0 to {num_nodes - 1}, or -1 for all. "
            f"Received: {name}={value!r}"
        )
