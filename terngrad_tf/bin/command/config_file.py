"""terngrad.toml: options of the subcommands of `terngrad`, a table for each subcommand."""

import importlib
import json
import os
import sys
from typing import Any

from terngrad_tf.bin.command.commands import ALL
from terngrad_tf.bin.command.options import Option, options_of
from terngrad_tf.common import files
from terngrad_tf.common.arguments import did_you_mean, shown

# In Python since 3.11; tomli has the same functions.
tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

NAME = "terngrad.toml"
# Their options say what to print at once.
_WITHOUT_TABLE = ("completion", "config", "explain")


def read(path: str) -> dict[str, dict[str, Any]]:
    """Returns {subcommand: {option: value}} of a TOML file."""
    with files.open_regular(path) as file:
        return parse(path, file.read())


def parse(path: str, content: bytes) -> dict[str, dict[str, Any]]:
    """Like `read`, for a file's content; `path` is for messages."""
    try:
        tables = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be TOML: {error}") from None
    for command, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {shown(command)} must be in a table such as [run]")
        check_command(path, command)
    return tables


def check_command(path: str, command: str) -> None:
    """Raises ValueError unless a table may be named like this."""
    if command not in ALL:
        raise ValueError(f"{path}: no command [{command}]{did_you_mean(command, ALL)}")
    if command in _WITHOUT_TABLE:
        rule = f"must not be given: terngrad {command} takes no options from a file"
        raise ValueError(f"{path}: [{command}] {rule}")


def arguments(path: str, table: dict[str, Any], command: str) -> list[str]:
    """Returns the options of a subcommand in a file as words of a command line.

    Example:
        >>> arguments("terngrad.toml", {"hosts": ["host1", "host2"], "sync": True}, "run")
        ['--hosts=host1,host2', '--sync']
    """
    known = options_of(command) if table else {}
    words, spelled = [], {}
    try:
        for key, value in table.items():
            option = find_option(known, key)
            if option is None:
                raise ValueError(f"has no option {shown(key)}{did_you_mean(key, known)}")
            if option in spelled:
                twice = f"{spelled[option]} and {key}"
                raise ValueError(f"must have {option.name} once. Received: {twice}")
            spelled[option] = key
            words += _words(option, value)
    except ValueError as error:
        raise ValueError(f"{path}: [{command}] {error}") from None
    return words


def find_option(known: dict[str, Option], key: str) -> Option | None:
    """Returns the option with a name, or None; `-` and `_` are equal."""
    return known.get(key) or known.get(key.replace("_", "-")) or known.get(key.replace("-", "_"))


def _words(option, value):
    """Returns the words of a command line that give an option a value of a TOML file."""
    name = option.name
    if option.is_switch:
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false. Received: {shown(value)}")
        if value:
            return [f"--{name}"]
        return [f"--no{name}"] if option.can_be_off else []
    if isinstance(value, bool):
        raise ValueError(f"{name} must be given a value, not a bool")
    if isinstance(value, dict):
        if not option.repeats:
            raise ValueError(f"{name} must be one value. Received: a table")
        value = [f"{variable}={text}" for variable, text in value.items()]
    if not isinstance(value, list):
        value = [value]
    elif not option.repeats:
        value = [",".join(map(str, value))]
    return [f"--{name}={one}" for one in value]


def with_table(text: str, command: str, table: dict[str, Any]) -> str:
    """Returns a TOML text with one subcommand's table replaced or added; the rest is unchanged."""
    name = command if command.isidentifier() else json.dumps(command)
    # JSON and TOML write these values alike.
    lines = [
        f"[{name}]",
        *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()),
    ]
    rows = text.split("\n")
    start = next((i for i, row in enumerate(rows) if row.startswith(lines[0])), None)
    if start is None:
        new = "\n".join(lines) + "\n"
        return f"{text}\n{new}" if text else new
    end = next((i for i in range(start + 1, len(rows)) if rows[i].startswith("[")), len(rows))
    # Comments below the last value may belong to the next table.
    while not rows[end - 1].strip() or rows[end - 1].startswith("#"):
        end -= 1
    # The head line may end with a comment.
    return "\n".join([*rows[: start + 1], *lines[1:], *rows[end:]])


def path_of_folder() -> str | None:
    """Returns the path of the file in the working folder, or None."""
    return NAME if os.path.isfile(NAME) else None
