"""WordNet ids, which name ImageNet's classes and the folders of their images."""

import re

from slim_data.common.errors import DataError

_ID = re.compile(r"n[0-9]{8}")


def check_wordnet_id(name: str, place: str) -> str:
    """Returns a WordNet id unchanged, or raises DataError, since files are written to its path."""
    if not _ID.fullmatch(name):
        raise DataError(f"{place}: a WordNet id must be n and 8 digits. Received: {name[:60]!r}")
    return name
