"""Hides TensorFlow's messages while TensorFlow loads."""

import contextlib
import glob
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def capture_stderr() -> Iterator[None]:
    """Hides messages that TensorFlow's libraries write while they load, unless loading fails.

    TensorFlow 2.21 has no setting for this.
    """
    # Without a driver, "failed call to cuInit" would look like an error.
    has_driver = glob.glob("/dev/nvidia*") or os.path.exists("/dev/dxg")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_driver else "3")
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
