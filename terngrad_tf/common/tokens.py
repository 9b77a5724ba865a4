"""A secret by which the processes of a cluster recognize each other at the rendezvous."""

import hashlib
import hmac
import os
from typing import Any

from terngrad_tf.common.files import open_regular

VARIABLE = "TERNGRAD_TF_TOKEN"
# An eavesdropper can test guesses offline.
FEWEST_CHARACTERS = 16
_MOST_CHARACTERS = 1000


def token_from_environment() -> str | None:
    """Returns the token in TERNGRAD_TF_TOKEN, or None; raises ValueError if invalid."""
    text = os.environ.get(VARIABLE)
    return None if text is None else checked(text, f"the environment variable {VARIABLE}")


def token_from_file(path: str | os.PathLike) -> str:
    """Returns the token that is a file's only line; raises ValueError if invalid."""
    with open_regular(path) as file:
        content = file.read(_MOST_CHARACTERS + 3)
    return checked(content.decode("utf-8", "replace").rstrip("\r\n"), f"the file {path}")


def checked(token: Any, what: str) -> str:
    """Returns a token; raises ValueError, which does not reveal the token, if invalid."""
    fits = isinstance(token, str) and FEWEST_CHARACTERS <= len(token) <= _MOST_CHARACTERS
    # Blanks at the ends are invisible, and may exist on one host only.
    if not fits or not token.isascii() or not token.isprintable() or token != token.strip():
        received = f"{len(token)} characters" if isinstance(token, str) else type(token).__name__
        raise ValueError(
            f"{what} must hold a token of {FEWEST_CHARACTERS} to {_MOST_CHARACTERS} printable ASCII"
            f" characters without blanks at its ends. Received: {received}"
        )
    return token


def seal(token: str, *fields: str) -> str:
    """Returns the HMAC-SHA256 of fields without line breaks, 64 hexadecimal digits."""
    return hmac.new(token.encode(), "\n".join(fields).encode(), hashlib.sha256).hexdigest()


def is_seal(sealed: str, token: str, *fields: str) -> bool:
    """Returns True if a text is the `seal` of these fields, in constant time."""
    return hmac.compare_digest(sealed.encode(), seal(token, *fields).encode())
