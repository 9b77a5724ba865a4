"""Help and version flags, under the names that programs built on absl use."""

import argparse
import sys
from typing import Any
from xml.etree import ElementTree

from slim_data.common.version import __version__


class Parser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` with `--helpshort`, `--helpfull`, `--helpxml` and `--version`."""

    def __init__(self, **arguments: Any):
        self.added = []
        super().__init__(add_help=False, allow_abbrev=False, **arguments)
        names = ("-h", "--help", "--helpshort", "--helpfull")
        self.add_argument(*names, action="help", help="Show this text.")
        self.add_argument("--helpxml", action=_HelpXML, help="Show the arguments as XML.")
        version = f"{self.prog} {__version__}"
        text = "Show the version."
        self.add_argument("--version", action="version", version=version, help=text)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Adds an argument and keeps its action in `added`."""
        self.added.append(super().add_argument(*names, **options))
        return self.added[-1]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses `--name=--`, which argparse would take for an empty list."""
        args = sys.argv[1:] if args is None else list(args)
        for text in args:
            if text == "--":
                break
            if text.startswith("--") and text.endswith("=--") and text.count("=") == 1:
                self.error(f"argument {text.removesuffix('=--')}: expected a value other than --")
        return super().parse_known_args(args, namespace)


class _HelpXML(argparse.Action):
    def __init__(self, option_strings, dest, **arguments):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **arguments)

    def __call__(self, parser: Parser, namespace, values, option_string=None):
        root = ElementTree.Element("AllFlags")
        ElementTree.SubElement(root, "program").text = parser.prog
        ElementTree.SubElement(root, "usage").text = parser.description
        for action in parser.added:
            names = [name.lstrip("-") for name in action.option_strings] or [action.dest]
            default = action.default if action.default is not argparse.SUPPRESS else None
            # XML readers ask for flags; positional arguments are none.
            place = {} if action.option_strings else {"positional": "yes"}
            flag = ElementTree.SubElement(root, "flag", place)
            for field, text in (
                ("name", max(names, key=len)),
                ("meaning", "" if action.help in (None, argparse.SUPPRESS) else action.help),
                ("default", "" if default is None else str(default)),
                ("type", getattr(action.type, "__name__", "string").strip("_")),
            ):
                ElementTree.SubElement(flag, field).text = text
        ElementTree.indent(root)
        sys.stdout.write(ElementTree.tostring(root, "unicode") + "\n")
        parser.exit()
