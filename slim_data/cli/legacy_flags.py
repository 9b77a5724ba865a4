"""Command lines written for the flag parser of TensorFlow 1."""

from collections.abc import Sequence
from typing import Any

VALUES = ("true", "false", "t", "f", "1", "0")


def rewrite(argv: Sequence[str], flag_values: Any) -> list[str]:
    """Joins `--flag True` into `--flag=True` for boolean flags.

    absl takes the value of a boolean flag only after `=`; older command lines give it as the next
    argument. Arguments after `--` are unchanged.

    Args:
        argv: the program's name first.
        flag_values: `absl.flags.FlagValues` of the program.

    Example:
        >>> rewrite(["x", "--shard", "True", "--dataset_name", "mnist"], flags.FLAGS)
        ['x', '--shard=True', '--dataset_name', 'mnist']
    """
    rewritten = list(argv[:1])
    rest = list(argv[1:])
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return [*rewritten, argument, *rest]
        name = argument.lstrip("-")
        is_boolean = argument.startswith("-") and name in flag_values and flag_values[name].boolean
        if is_boolean and rest and rest[0].lower() in VALUES:
            argument = f"{argument}={rest.pop(0)}"
        elif argument.startswith("-") and name in flag_values and not is_boolean and rest:
            # The value of another flag is never a flag itself.
            rewritten.append(argument)
            argument = rest.pop(0)
        rewritten.append(argument)
    return rewritten
