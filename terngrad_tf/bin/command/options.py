"""Reads the options of each subcommand of `terngrad` from the subcommand itself."""

import contextlib
import dataclasses
import importlib
import io
import re
import sys
from xml.etree import ElementTree

from terngrad_tf.bin.command.commands import ALL

# Flags that describe a program, name a file of flags, or end the options.
_NOT_OPTIONS = {
    "help",
    "helpshort",
    "helpfull",
    "helpxml",
    "version",
    "flagfile",
    "undefok",
    "h",
    "module",
}
# An option with its placeholder, in argparse's help.
_SHOWN = re.compile(r"(?:^  |, )--([a-z][a-z-]*)( [^\s,]+)?", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a subcommand.

    Attributes:
        can_be_off: `--no<name>` exists.
        repeats: it may be given several times.
    """

    name: str
    is_switch: bool = False
    can_be_off: bool = False
    repeats: bool = False


def options_of(command: str) -> dict[str, Option]:
    """Returns {name: `Option`} of a subcommand in `commands.ALL`."""
    module = importlib.import_module(ALL[command].module)
    if ALL[command].takes_arguments:
        found = _of_parser(module.parser())
    else:
        found = _of_flags(ElementTree.fromstring(_help_xml(module, command)))
    return {option.name: option for option in found if option.name not in _NOT_OPTIONS}


def _of_parser(parser):
    return [
        Option(
            name,
            is_switch=not value,
            repeats=isinstance(parser.get_default(name.replace("-", "_")), list),
        )
        for name, value in _SHOWN.findall(parser.format_help())
    ]


def _of_flags(xml):
    flags = [flag for flag in xml.iterfind("flag") if not flag.get("positional")]
    switches = {f.findtext("name") for f in flags if f.findtext("type") in ("bool", "boolean")}
    # Programs on argparse list `--no<name>` separately.
    off = {f"no{name}" for name in switches}
    names = [name for flag in flags if (name := flag.findtext("name") or "") not in off]
    return [Option(name, name in switches, name in switches) for name in names]


def _help_xml(module, command):
    printed, before = io.StringIO(), sys.argv
    sys.argv = [f"terngrad {command}", "--helpxml"]
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            module.run()
    finally:
        sys.argv = before
    return printed.getvalue()
