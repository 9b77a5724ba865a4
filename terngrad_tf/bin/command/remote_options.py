"""Options of the commands of `terngrad` for other machines."""

import argparse
import os
import shlex
import sys
from typing import Any

from terngrad_tf.common.arguments import shown

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


def ssh_options(values: argparse.Namespace) -> list[str]:
    """Returns the words of `--ssh`.

    Raises:
        ValueError: a quotation mark or an escape is left open.
    """
    try:
        return shlex.split(values.ssh)
    except ValueError as error:
        raise ValueError(
            f"`--ssh` must be words as in a shell: {error}. Received: {shown(values.ssh)}"
        ) from None


def environment() -> dict[str, str]:
    """Returns variables that other machines' Python may need to find terngrad_tf."""
    return {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
