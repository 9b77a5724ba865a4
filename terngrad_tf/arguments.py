"""Checks of what users pass, with errors of one form."""


def check(condition, name, rule, value):
    """Raises ValueError unless a condition holds.

    Args:
        condition: whether the value keeps the rule.
        name: the argument's name.
        rule: what the value must be, such as "must be a positive integer".
        value: the value received.

    Example:
        >>> check(0 > 1, "num_nodes", "must be a positive integer", 0)
        Traceback (most recent call last):
        ...
        ValueError: `num_nodes` must be a positive integer. Received: num_nodes=0
    """
    if not condition:
        raise ValueError(f"`{name}` {rule}. Received: {name}={value!r}")


def is_integer(value, least=None):
    """Whether a value is an integer, which a bool is not here, of at least `least`."""
    integer = isinstance(value, int) and not isinstance(value, bool)
    return integer and (least is None or value >= least)
