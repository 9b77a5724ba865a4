"""The one exception of the package."""

from slim_data.common.text import printable


class DataError(ValueError):
    """Missing, incomplete or damaged data, or a request that does not fit it; one line each.

    Whatever file names and values it quotes, the line is printable and not long: see
    `text.printable`.

    Example:
        >>> raise DataError("/data/test-mnist.tfrecord: record 17 (from 0): checksum differs")
        Traceback (most recent call last):
        ...
        DataError: /data/test-mnist.tfrecord: record 17 (from 0): checksum differs
    """

    def __init__(self, message):
        super().__init__(printable(message))
