"""The one exception of the package."""


class DataError(ValueError):
    """Missing, incomplete or damaged data, or a request that does not fit it; one line each.

    Example:
        >>> raise DataError("/data/test-mnist.tfrecord: record 17 (from 0): checksum differs")
        Traceback (most recent call last):
        ...
        slim_data.errors.DataError: /data/test-mnist.tfrecord: record 17 (from 0): checksum differs
    """
