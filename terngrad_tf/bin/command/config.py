"""Writes options of the other commands to a file that they read.

Example:
    terngrad config run -H host1,host2 --max-restarts 3
    terngrad config mnist_train --data_dir /data/mnist --grad_bits 1 --wire alltoall
"""

import argparse
import ast
import os
import pathlib
from collections.abc import Sequence

from terngrad_tf.bin.command import config_file
from terngrad_tf.bin.command.commands import ALL, find
from terngrad_tf.bin.command.options import options_of
from terngrad_tf.bin.command.parsing import fail, make_parser
from terngrad_tf.common import files
from terngrad_tf.common.arguments import did_you_mean, shown

PROGRAM = "terngrad config"
_DESCRIPTION = """\
Writes options of another command to terngrad.toml in this folder, in place of those that the file
had for that command. `terngrad COMMAND` then takes them from there; what stands on the command line
wins. Without a command, checks the file and shows it.

  terngrad config run -H host1,host2 --max-restarts 3
  terngrad config mnist_train --data_dir /data/mnist --grad_bits 1
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    usage = "terngrad config [--file FILE] [COMMAND [options]]"
    result = make_parser(PROGRAM, _DESCRIPTION, usage=usage)
    result.add_argument(
        "--file",
        type=os.path.expanduser,
        default=config_file.NAME,
        help="File. Default: %(default)s.",
    )
    result.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns the exit status."""
    values = parser().parse_args(arguments)
    try:
        if values.command:
            _write(values.file, *find(values.command))
        else:
            _show(values.file)
    except ValueError as error:
        return fail(PROGRAM, error)
    except OSError as error:
        return fail(PROGRAM, f"{values.file}: {error.strerror}")
    return 0


def _write(path, command, words):
    if command not in ALL:
        raise ValueError(f"no command {shown(command)}{did_you_mean(command, ALL)}")
    config_file.check_command(path, command)
    table, before = _table(command, words), b""
    config_file.arguments(path, table, command)
    if os.path.lexists(path):
        with files.open_regular(path) as file:
            before = file.read()
    others = config_file.parse(path, before)
    after = config_file.with_table(before.decode(), command, table).encode()
    try:
        is_changed = config_file.parse(path, after) == {**others, command: table}
    except ValueError:  # a table that is spelled in another way stands there twice now
        is_changed = False
    if not is_changed:
        raise ValueError(f"{path} cannot be changed, as [{command}] is not a table of plain lines")
    with files.atomic_write(pathlib.Path(path)) as beside:
        beside.write_bytes(after)
    print(f"{path}: {len(table)} options of terngrad {command}")


def _show(path):
    for command, table in config_file.read(path).items():
        config_file.arguments(path, table, command)
    with files.open_regular(path) as file:
        print(file.read().decode(), end="")


def _table(command, words):
    """Returns {option: value} of a command line."""
    known, table, words = options_of(command), {}, list(words)
    while words:
        word = words.pop(0)
        _, equals, value = word.partition("=")
        option, is_off = _option_of(command, known, word)
        # `--flag True` is `--flag=True`, as in the programs.
        follows = option.can_be_off and words and words[0].lower() in ("true", "false")
        if is_off:
            value = "false"
        elif option.is_switch and not equals and not follows:
            value = "true"
        elif not equals and not words:
            raise ValueError(f"--{option.name} must be followed by a value")
        elif not equals:
            value = words.pop(0)
        if option.repeats:
            table.setdefault(option.name, []).append(value)
        else:
            table[option.name] = _value(option, value)
    return table


def _option_of(command, known, word):
    """Returns the option that a word names, and whether the word is `--no<name>`."""
    name, equals, _ = word.lstrip("-").partition("=")
    if word.startswith("-"):
        option = config_file.find_option(known, "hosts" if name == "H" else name)
        if option is not None:
            return option, False
        option = known.get(name.removeprefix("no"))
        if option is not None and option.can_be_off and not equals:
            return option, True
    if word in ("--help", "-h"):
        raise ValueError(f"terngrad {command} --help tells its options")
    hint = did_you_mean(f"--{name}", [f"--{name}" for name in known])
    raise ValueError(f"terngrad {command} has no option {shown(word)}{hint}")


def _value(option, text):
    if option.is_switch:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"--{option.name} must be True or False. Received: {shown(text)}")
        return text.lower() == "true"
    try:
        number = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    # A number would lose characters of names such as 007 or 1_0.
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return number if is_number and str(number) == text else text
