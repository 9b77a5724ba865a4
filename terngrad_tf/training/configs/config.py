"""Nested configurations: options declare their meaning, allowed values and effects.

Programs' flags, a run's identity and comparisons between processes follow from these declarations.
"""

import contextlib
import dataclasses
import os
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeGuard, TypeVar

# Declared below this layer, for the options of the library.
from terngrad_tf.common.options import REQUIRED as REQUIRED
from terngrad_tf.common.options import documented
from terngrad_tf.common.options import option as option
from terngrad_tf.training.configs import checks
from terngrad_tf.training.errors import as_user_error, require

_Self = TypeVar("_Self", bound="Config")
_Kind = TypeVar("_Kind", bound="Config")


def harmless(kind: type[_Kind]) -> type[_Kind]:
    """Declares that no option of a class changes a run's identity; goes below `configuration`."""
    for field in vars(kind).values():
        if isinstance(field, dataclasses.Field):
            field.metadata = types.MappingProxyType({**field.metadata, "identity": False})
    return kind


def configuration(kind: type[_Kind]) -> type[_Kind]:
    """Makes a subclass of `Config` a frozen dataclass; its docstring gets the options' texts."""
    return documented(dataclasses.dataclass(frozen=True, kw_only=True)(kind))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Base of the configurations: frozen dataclasses of options and of further configurations.

    Options have unique names, at any depth. A path may begin with ~, the home folder.

    Raises:
        UserError: an option does not allow its value.

    Example:
        >>> from terngrad_tf.training.configs.run_config import GradientConfig
        >>> GradientConfig(grad_bits=1).changed(clip_factor=2.5).values()["clip_factor"]
        2.5
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, check = getattr(self, field.name), field.metadata.get("check")
            if check is None or value is None:
                continue
            if check in checks.PATHS:
                # No shell expands `--flag=~/path` or a path in a file.
                with contextlib.suppress(ValueError):  # of a text that the check refuses
                    value = os.path.expanduser(value)
                object.__setattr__(self, field.name, value)
            with as_user_error():
                check(name_of(field), value)

    def refuse_given(self, names: Collection[str], why: str) -> None:
        """Raises UserError if an option that would change nothing differs from its default.

        Args:
            names: names of options of this class.
            why: end of the rule "`name` must not be given ".
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in names:
                is_default = value == field.default
                require(is_default, name_of(field), f"must not be given {why}", value)

    @classmethod
    def of(cls: type[_Self], **values: Any) -> _Self:
        """Returns an instance with these values of its options at any depth.

        Raises:
            TypeError: an option is unknown, or one without a default is missing.
        """
        return _filled(cls, None, values)

    def changed(self: _Self, **values: Any) -> _Self:
        """Returns a copy with other values of some options, as for `of`."""
        return _filled(type(self), self, values)

    def values(self, which: str | None = None) -> dict[str, Any]:
        """Returns the values of all options, or of shared ones if `which` is "shared", by name."""
        return self._collected(
            lambda field: which is None or field.metadata.get(which, True),
            lambda part: part.values(which),
        )

    def identity(self) -> dict[str, Any]:
        """Returns the values that identify the run, by option."""

        def matters(field):
            identity = field.metadata.get("identity", True)
            return bool(identity(self) if callable(identity) else identity)

        return self._collected(matters, lambda part: part.identity())

    def _collected(
        self,
        selects: Callable[[dataclasses.Field], bool],
        collect: Callable[["Config"], dict[str, Any]],
    ) -> dict[str, Any]:
        """Returns the values of selected options by name, with those that `collect` finds below."""
        found = {}
        for field in filter(selects, dataclasses.fields(self)):
            value = getattr(self, field.name)
            if isinstance(value, Config):
                found |= collect(value)
            elif "help" in field.metadata:
                found[name_of(field)] = value
        return found


def values_before(kind: type[Config]) -> dict[str, Any]:
    """Returns the values of runs that are older than an option, by option."""
    return {
        name_of(field): field.metadata["before"]
        for field in options(kind)
        if "before" in field.metadata
    }


def options(kind: type[Config]) -> Iterator[dataclasses.Field]:
    """Yields the fields of all options at any depth."""
    for field in dataclasses.fields(kind):
        if _is_config(field.type):
            yield from options(field.type)
        elif "help" in field.metadata:
            yield field


def name_of(field: dataclasses.Field) -> str:
    """Returns the name of an option as a flag, in errors and in run.json."""
    return field.metadata.get("name", field.name)


def _is_config(kind: Any) -> TypeGuard[type["Config"]]:
    return isinstance(kind, type) and issubclass(kind, Config)


def _filled(kind, base, values):
    """Returns a configuration from values by name, else from `base`, else defaults."""
    left = dict(values)

    def made(kind, base):
        arguments = {}
        for field in dataclasses.fields(kind):
            before = None if base is None else getattr(base, field.name)
            if _is_config(field.type):
                arguments[field.name] = made(field.type, before)
            elif name_of(field) in left:
                arguments[field.name] = left.pop(name_of(field))
            elif base is not None:
                arguments[field.name] = before
        return kind(**arguments)

    found = made(kind, base)
    if left:
        raise TypeError(f"{kind.__name__} has no option {next(iter(left))!r}")
    return found
