"""Recognizes TensorFlow's remarks that the log level should have hidden."""

import re

from terngrad_tf.launcher.system import has_gpu_driver

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_HIDES_REMARKS = 2
_REMARK = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
    r"|[IW]\d{4} \d\d:\d\d:\S+ +\d+ [\w/]+\.(?:cc|h):\d+\] "
)
# Errors only if a driver is installed. TensorFlow 2.18 writes the date in another format, too.
_NO_DRIVER = re.compile(
    r"(?:E\d{4} |\d{4}-\d\d-\d\d \d\d:\S+ E ).*\.cc:\d+\] "
    r"(?:failed call to cuInit|Unable to register cu\w+ factory)"
)


class Remarks:
    """Recognizes remarks that TensorFlow's import writes before it reads the log level."""

    def __init__(self, environment: dict[str, str]) -> None:
        level = environment.get(_VARIABLE, "")
        self._are_hidden = level.isdecimal() and int(level) >= _HIDES_REMARKS
        self._has_driver = has_gpu_driver()

    def hide(self, line: str) -> bool:
        """Returns True if the level hides this line.

        Example:
        >>> remark = "I0000 00:00:1795783979.734903    7565 port.cc:153] oneDNN custom ..."
        >>> Remarks({"TF_CPP_MIN_LOG_LEVEL": "2"}).hide(remark)
        True
        >>> Remarks({}).hide(remark)
        False
        """
        if not self._are_hidden:
            return False
        has_no_use = not self._has_driver and _NO_DRIVER.match(line)
        return bool(has_no_use or _REMARK.match(line))
