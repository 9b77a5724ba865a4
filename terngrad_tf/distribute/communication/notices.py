"""Lines for who runs the program, as Keras tells of its progress."""

import logging

import keras

_logger = logging.getLogger(__name__)


def tell(line: str) -> None:
    """Prints a line, or logs it where `keras.utils.disable_interactive_logging` was called.

    Args:
        line: str without a line break at its end.
    """
    if keras.config.is_interactive_logging_enabled():
        print(line, flush=True)
    else:
        _logger.info("%s", line)
