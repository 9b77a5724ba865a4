"""Flags of the programs, made of configurations: each option is a flag of its name."""

import functools
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from absl import flags

from terngrad_tf.training import config

_Config = TypeVar("_Config", bound=config.Config)


class _NumberOrText(flags.ArgumentParser):
    """A number where it is one, else text, which the option's check may refuse."""

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
    """Defines a flag for each option of a configuration.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        kind: subclass of `config.Config`.
        omit: names of options that the program has no flag for.
        texts: dict from names of options to what their help says instead.
        **defaults: defaults of the program's own, by the options' names.
    """
    for field in config.options(kind):
        name = config.name_of(field)
        if name not in omit:
            types = frozenset(typing.get_args(field.type) or [field.type]) - {type(None)}
            text = (texts or {}).get(name, field.metadata["help"])
            _DEFINE[types](name, defaults.get(name, field.default), text, flag_values=values)


def config_of(values: flags.FlagValues, kind: type[_Config], **others: Any) -> _Config:
    """Makes a configuration of parsed flags.

    Args:
        values: parsed `absl.flags.FlagValues`.
        kind: subclass of `config.Config`; options without a flag keep their defaults.
        **others: values of options that the flags do not say.

    Raises:
        UserError: a value is none that its option takes.
    """
    names = map(config.name_of, config.options(kind))
    return kind.of(**{name: values[name].value for name in names if name in values} | others)


def define_within(
    values: flags.FlagValues, name: str, default: int, text: str, least: int, most: int
) -> None:
    """Defines a flag that is an integer from `least` to `most`, which absl itself sees to."""
    flags.DEFINE_integer(
        name, default, text, flag_values=values, lower_bound=least, upper_bound=most
    )
