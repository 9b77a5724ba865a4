"""Options: fields of a dataclass that declare what they mean, allow and affect.

The programs' flags with their help and range, the identity of a run and the comparison between the
processes of a cluster follow from these declarations.
"""

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
    """A field of a dataclass that is an option.

    Args:
        default: its default; `REQUIRED` if it has none.
        text: what it means, and what None stands for; also the help of its flag.
        check: function of the name and a value other than None that raises `ValueError`. Default:
            every value is allowed.
        name: its name as a flag, in the programs' errors and in run.json. Default: the field's.
        identity: whether a run cannot be resumed with another value, because that would make
            another run; or a function of the object that holds the option which returns this.
            Default True.
        before: the value of runs that did not record one, because they are older than the option.
            Default: every run recorded one.
        shared: whether all processes of a cluster must have the same value. Default True.
        shown: whether the `repr` of the dataclass shows the value, unlike a secret. Default True.
    """
    metadata = {"help": text, "check": check, "identity": identity, "shared": shared}
    if name is not None:
        metadata["name"] = name
    if before is not REQUIRED:
        metadata["before"] = before
    return dataclasses.field(default=default, repr=shown, metadata=metadata)


def redeclared(kind: type, name: str, default: Any, **changes: Any) -> Any:
    """An option of another dataclass, with another default.

    Args:
        kind: the dataclass.
        name: the option's field.
        default: the default here.
        **changes: what else is declared differently: `text`, `before`.
    """
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
    """Raises ValueError unless each option of a dataclass has a value that it allows."""
    for field in dataclasses.fields(owner):
        check, value = field.metadata.get("check"), getattr(owner, field.name)
        if check is not None and value is not None:
            check(field.name, value)


def shared_values(owner: Any) -> dict[str, Any]:
    """The values of a dataclass that all processes of a cluster must share, by name.

    A function is represented by its qualified name, and left out if it has none.
    """
    found = {}
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if callable(value):
            value = getattr(value, "__qualname__", None)
        if field.metadata.get("shared", True) and value is not None:
            found[field.name] = value
    return found
