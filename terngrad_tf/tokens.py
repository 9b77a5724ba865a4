"""A secret that the processes of a cluster share, by which they know each other when they meet."""

import hashlib
import hmac
import os
from typing import Any

from terngrad_tf.files import open_regular

VARIABLE = "TERNGRAD_TF_TOKEN"
# Who listens to a meeting can try tokens on what was sent as fast as its machine allows.
FEWEST_CHARACTERS = 16
_MOST_CHARACTERS = 1000


def token_from_environment() -> str | None:
    """The token in the environment variable TERNGRAD_TF_TOKEN; None where there is none.

    Raises:
        ValueError: it is no token.
    """
    text = os.environ.get(VARIABLE)
    return None if text is None else checked(text, f"the environment variable {VARIABLE}")


def token_from_file(path: str | os.PathLike) -> str:
    """The token that is the one line of a file.

    Args:
        path: the file.

    Raises:
        ValueError: it holds no token.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(_MOST_CHARACTERS + 3)
    return checked(content.decode("utf-8", "replace").rstrip("\r\n"), f"the file {path}")


def checked(token: Any, what: str) -> str:
    """A token found to be one; the error tells nothing of it.

    Args:
        token: what was given.
        what: str, where it is from; begins the error.

    Raises:
        ValueError: it is no token.
    """
    fits = isinstance(token, str) and FEWEST_CHARACTERS <= len(token) <= _MOST_CHARACTERS
    # Blanks at its ends, which nobody sees, are there on one host and not on another.
    if not fits or not token.isascii() or not token.isprintable() or token != token.strip():
        received = f"{len(token)} characters" if isinstance(token, str) else type(token).__name__
        raise ValueError(
            f"{what} must hold a token of {FEWEST_CHARACTERS} to {_MOST_CHARACTERS} printable ASCII"
            f" characters without blanks at its ends. Received: {received}"
        )
    return token


def seal(token: str, *fields: str) -> str:
    """HMAC-SHA256 of fields without line breaks, 64 hexadecimal digits."""
    return hmac.new(token.encode(), "\n".join(fields).encode(), hashlib.sha256).hexdigest()


def is_seal(sealed: str, token: str, *fields: str) -> bool:
    """Whether a text is the `seal` of these fields, compared in constant time."""
    return hmac.compare_digest(sealed.encode(), seal(token, *fields).encode())
