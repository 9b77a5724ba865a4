"""Lines for a terminal. Imports no TensorFlow: a mistyped flag ends a program at once."""

import shutil
import textwrap
from typing import TextIO


def wrapped(text: str, stream: TextIO) -> str:
    """A line, broken between words where a stream is a terminal that is too narrow for it.

    Paths and other words stay whole. Files and pipes get the line as it is.
    """
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
