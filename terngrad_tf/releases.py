"""The tested releases of TensorFlow and Keras, and errors about other releases."""

import contextlib
import importlib
import types
from collections.abc import Iterator

# First and last; the tests run with both.
TESTED = {"tensorflow": ("2.18", "2.21"), "keras": ("3.12", "3.15")}
_PRIVATE = ("keras.src", "tensorflow.python", "tensorflow.core")


def untested(tensorflow: str, keras: str, what: str) -> str:
    """Returns one line on a release that lacks something.

    Example:
    >>> untested("2.23.0", "3.15.0", "no such name")
    'terngrad_tf is tested with tensorflow 2.18 to 2.21 and keras 3.12 to 3.15, not with tensorflow
     2.23.0 and keras 3.15.0: no such name'
    """
    tested = " and ".join(f"{name} {first} to {last}" for name, (first, last) in TESTED.items())
    return (
        f"terngrad_tf is tested with {tested}, not with tensorflow {tensorflow} and keras {keras}:"
        f" {what}"
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Context of imports of modules that use private names of TensorFlow and Keras.

    Raises:
        RuntimeError: a release lacks such a name. The message is one line.
    """
    try:
        yield
    except (ImportError, AttributeError) as error:
        if not _owner(error).startswith(_PRIVATE):
            raise
        line = untested(_version("tensorflow"), _version("keras"), str(error))
    else:
        return
    raise RuntimeError(line)


def _owner(error):
    """Returns the module that should hold a missing name."""
    if isinstance(error, ImportError):
        return error.name or ""
    owner = error.obj
    name = owner.__name__ if isinstance(owner, types.ModuleType) else ""
    return name or getattr(owner, "__module__", None) or ""


def _version(package):
    module = importlib.import_module(package)
    return getattr(module, "__version__", "of an unknown version")
