"""Lines for a terminal. Imports no TensorFlow."""

import shutil
import textwrap
from typing import TextIO


def wrapped(text: str, stream: TextIO) -> str:
    """Wraps a line between words if a stream is a terminal too narrow for it.

    Long words, such as paths, stay whole.
    """
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
