"""Flags of the programs, made from configurations: one flag per option, with its name."""

import functools
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from absl import flags

from terngrad_tf.training.configs import config

_Config = TypeVar("_Config", bound=config.Config)


class _NumberOrText(flags.ArgumentParser):
    """A number if possible, else text, which the option's check may refuse."""

    syntactic_help = "a number or a name"

    def parse(self, argument: Any) -> float | str:
        """Called by absl."""
        try:
            return float(argument)
        except ValueError:
            return argument


_DEFINE = {
    frozenset({str}): flags.DEFINE_string,
    frozenset({int}): flags.DEFINE_integer,
    frozenset({float}): flags.DEFINE_float,
    frozenset({bool}): flags.DEFINE_bool,
    frozenset({float, str}): functools.partial(flags.DEFINE, _NumberOrText()),
}


def define(
    values: flags.FlagValues,
    kind: type[config.Config],
    *,
    omit: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
    **defaults: Any,
) -> None:
    """Defines a flag for each option of a configuration, except those to `omit`.

    `texts` and `defaults` replace the options' help texts and defaults.
    """
    for field in config.options(kind):
        name = config.name_of(field)
        if name not in omit:
            types = frozenset(typing.get_args(field.type) or [field.type]) - {type(None)}
            text = (texts or {}).get(name, field.metadata["help"])
            _DEFINE[types](name, defaults.get(name, field.default), text, flag_values=values)


def config_of(values: flags.FlagValues, kind: type[_Config], **others: Any) -> _Config:
    """Creates a configuration from parsed flags and `others`; other options keep their defaults."""
    names = map(config.name_of, config.options(kind))
    return kind.of(**{name: values[name].value for name in names if name in values} | others)


def define_within(
    values: flags.FlagValues, name: str, default: int, text: str, least: int, most: int
) -> None:
    """Defines a flag for an integer from `least` to `most`, which absl checks.

    Defined here, since the help of programs groups flags by the module that defines them.
    """
    flags.DEFINE_integer(
        name, default, text, flag_values=values, lower_bound=least, upper_bound=most
    )
