"""The package's exceptions, whose messages quote arbitrary names and values safely."""

import contextlib
import errno
from collections.abc import Iterable, Iterator

MAX_LENGTH = 1000
# Numbers of an OSError of a full or broken disk, or of a file that is too large.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class DataError(ValueError):
    """Missing, incomplete or damaged data, or a request that does not fit the data.

    The message is one printable line of limited length: see `printable`.

    Example:
        >>> raise DataError("/data/test-mnist.tfrecord: record 17 (from 0): checksum differs")
        Traceback (most recent call last):
        ...
        DataError: /data/test-mnist.tfrecord: record 17 (from 0): checksum differs
    """

    def __init__(self, message: object):
        super().__init__(printable(message))


class DataErrors(DataError):
    """Several faults found in one pass; the message quotes the first and gives their number.

    Args:
        faults: messages, at least one.
        advice: end of the message.
    """

    def __init__(self, faults: Iterable[str], advice: str = ""):
        self.faults = tuple(map(printable, faults))
        self.advice = advice
        more = len(self.faults) - 1
        # `printable` must not shorten the end away.
        ends = [f"and {more} more, as told above"] if more else []
        ends += [advice] if advice else []
        first = printable(self.faults[0], MAX_LENGTH - 200) if ends else self.faults[0]
        super().__init__("; ".join([first, *ends]))

    def __reduce__(self):
        # Processes exchange these errors.
        return type(self), (self.faults, self.advice)


@contextlib.contextmanager
def errors_of(place: object) -> Iterator[None]:
    """Puts the place, such as a file, before the message of a DataError in the context."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


@contextlib.contextmanager
def os_errors_of(place: object) -> Iterator[None]:
    """Turns an OSError in the context into a DataError that names the place."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{place}: {error.strerror}") from error


@contextlib.contextmanager
def write_errors_of(argument: str, folder: object) -> Iterator[None]:
    """Turns an OSError into a DataError: an argument must be a folder to write to."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"`{argument}` must be a folder that can be written to. "
            f"Received: {argument}={str(folder)!r} ({error})"
        ) from error


def printable(text: object, max_length: int = MAX_LENGTH) -> str:
    r"""Returns a text as one line of limited length that cannot act as a terminal command.

    Escapes line ends, control characters, characters that change the writing direction and
    undecodable bytes as in Python, such as `\x1b`. Long texts lose their middle: an error begins
    with its rule and often ends with advice.

    Args:
        text: str, or an object that `str` accepts.
        max_length: maximum number of characters, at least 100.

    Example:
        >>> printable("train\x1b[2J.tfrecord")
        'train\\x1b[2J.tfrecord'
    """
    # Shorten before escaping, which is slow for long texts.
    escaped = "".join(map(_escaped, _shortened(str(text), 2 * max_length)))
    return _shortened(escaped, max_length)


def _escaped(character):
    return character if character.isprintable() else repr(character)[1:-1]


def _shortened(text, max_length):
    if len(text) <= max_length:
        return text
    mark = f"[... {len(text)} characters ...]"
    begin = 2 * (max_length - len(mark)) // 3
    end = max_length - len(mark) - begin
    return f"{text[:begin]}{mark}{text[-end:]}"
