"""WordNet ids, which name ImageNet's classes and the folders of their images."""

import re

from slim_data.common.errors import DataError

_ID = re.compile(r"n[0-9]{8}")


def check_wordnet_id(name: str, place: str) -> str:
    """Returns a WordNet id as it is.

    Args:
        name: str, the id.
        place: str, where it was found, for the message.

    Raises:
        DataError: it is none. It could be a path, and files would be written there.
    """
    if not _ID.fullmatch(name):
        raise DataError(f"{place}: a WordNet id must be n and 8 digits. Received: {name[:60]!r}")
    return name
