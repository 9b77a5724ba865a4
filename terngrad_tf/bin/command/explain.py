"""Prints what an error message means and what to do, without a network.

Example:
    terngrad explain E11
    terngrad explain "lost worker 2 (host2:2222: connection refused)"
"""

import argparse
from collections.abc import Sequence

from terngrad_tf.bin.command.parsing import fail, make_parser
from terngrad_tf.common import messages
from terngrad_tf.common.arguments import did_you_mean, shown

PROGRAM = "terngrad explain"


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    result = make_parser(
        PROGRAM,
        "Prints what a message of terngrad_tf means and what to do. Messages that end a program\n"
        "name their code at the end of the line. --list prints all.",
    )
    result.add_argument("--list", action="store_true", help="Print all codes and messages.")
    result.add_argument("words", nargs="*", metavar="WORDS", help="A code, or a message's text.")
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns 0, or 2 for an unknown message."""
    values = parser().parse_args(arguments)
    try:
        known = messages.messages()
    except OSError as error:
        return fail(PROGRAM, f"{error.filename}: {error.strerror}")
    if values.list:
        print("\n".join(f"{message.code}  {message.title}" for message in known.values()))
        return 0
    text = " ".join(values.words)
    found = known.get(text.upper()) or (messages.find(text) if text else None)
    if found is None:
        rule = "must be a code or the text of a message" + did_you_mean(text.upper(), known)
        received = f"Received: {shown(text)}; {PROGRAM} --list prints all"
        return fail(PROGRAM, f"WORDS {rule}. {received}")
    print(found.plain(), end="")
    return 0
