"""Options: fields of a dataclass that declare what they mean, allow and affect."""

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound=type)

REQUIRED = dataclasses.MISSING


def option(
    default: Any,
    text: str,
    check: Callable[[str, Any], None] | None = None,
    *,
    name: str | None = None,
    identity: bool | Callable[[Any], bool] = True,
    before: Any = REQUIRED,
    shared: bool = True,
    shown: bool = True,
) -> Any:
    """Returns a dataclass field that is an option.

    Args:
        default: `REQUIRED` for none.
        text: meaning of the option and of None; also the help of its flag.
        check: function of name and value that raises `ValueError`; not called with a default None.
        name: name of the flag, in errors and in run.json. Default: the field's name.
        identity: whether another value makes another run, which cannot be resumed, or a function of
            the option's object that returns this.
        before: value of runs older than the option. Default: every run recorded one.
        shared: whether all processes of a cluster must agree.
        shown: False for a secret, which `repr` must not show.
    """
    metadata = {"help": text, "check": check, "identity": identity, "shared": shared}
    if name is not None:
        metadata["name"] = name
    if before is not REQUIRED:
        metadata["before"] = before
    return dataclasses.field(default=default, repr=shown, metadata=metadata)


def redeclared(kind: type, name: str, default: Any, **changes: Any) -> Any:
    """Returns another dataclass's option with another default, `text` or `before`."""
    (field,) = (field for field in dataclasses.fields(kind) if field.name == name)
    if "text" in changes:
        changes["help"] = changes.pop("text")
    return dataclasses.field(default=default, metadata={**field.metadata, **changes})


def documented(kind: _Kind) -> _Kind:
    """Adds the texts of a dataclass's options to its docstring."""
    lines = []
    for field in dataclasses.fields(kind):
        text = field.metadata.get("help") or f"`{getattr(field.type, '__name__', field.type)}`."
        has_default = "help" in field.metadata and field.default is not REQUIRED
        lines.append(f"{field.name}: {text}{f' Default {field.default!r}.' if has_default else ''}")
    kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n\nArgs:\n" + textwrap.indent(
        "\n".join(lines), "    "
    )
    return kind


def check_options(owner: Any) -> None:
    """Raises ValueError unless each option of a dataclass has an allowed value."""
    for field in dataclasses.fields(owner):
        check, value = field.metadata.get("check"), getattr(owner, field.name)
        # None is allowed if it is the default.
        if check is not None and (value is not None or field.default is not None):
            check(field.name, value)


def shared_values(owner: Any) -> dict[str, Any]:
    """Returns a dataclass's values that all processes of a cluster must share, by name.

    Functions are represented by their qualified names.
    """
    found = {}
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if callable(value):
            value = getattr(value, "__qualname__", None)
        if field.metadata.get("shared", True) and value is not None:
            found[field.name] = value
    return found
