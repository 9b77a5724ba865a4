"""Lines for the user, printed or logged like Keras' progress."""

import logging

import keras

_logger = logging.getLogger(__name__)


def tell(line: str) -> None:
    """Prints a line, or logs it if `keras.utils.disable_interactive_logging` was called."""
    if keras.config.is_interactive_logging_enabled():
        print(line, flush=True)
    else:
        _logger.info("%s", line)
