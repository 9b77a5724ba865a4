"""Options of the commands of `terngrad` for other machines."""

import os
import sys
from typing import Any

PORT = 2222


def add_options(parser: Any) -> None:
    """Adds `--python` and `--ssh` to a parser, or to a group of its arguments."""
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="Python on other machines. Default: the path of this one.",
    )
    parser.add_argument(
        "--ssh", default="", metavar="OPTIONS", help="Options for ssh, such as '-p 2200 -i key'."
    )


def environment() -> dict[str, str]:
    """Returns variables that other machines' Python may need to find terngrad_tf."""
    return {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
