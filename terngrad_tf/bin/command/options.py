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
        parser = module.parser()
        shown = _SHOWN.findall(parser.format_help())
        found = [
            Option(
                name,
                is_switch=not value,
                repeats=isinstance(parser.get_default(name.replace("-", "_")), list),
            )
            for name, value in shown
        ]
    else:
        found = []
        for flag in ElementTree.fromstring(_help_xml(module, command)).iterfind("flag"):
            if flag.get("positional"):
                continue
            is_switch = flag.findtext("type") in ("bool", "boolean")
            found.append(Option(flag.findtext("name") or "", is_switch, is_switch))
        # Programs on argparse list `--no<name>` separately.
        off = {f"no{option.name}" for option in found if option.can_be_off}
        found = [option for option in found if option.name not in off]
    return {option.name: option for option in found if option.name not in _NOT_OPTIONS}


def _help_xml(module, command):
    printed, before = io.StringIO(), sys.argv
    sys.argv = [f"terngrad {command}", "--helpxml"]
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            module.run()
    finally:
        sys.argv = before
    return printed.getvalue()
