"""Packages that only an extra of terngrad_tf installs."""

import importlib
import importlib.util
from typing import Any

from slim_data.common.errors import DataError


def import_extra(name: str, extra: str = "experiments") -> Any:
    """Imports a module of an optional package at its use; DataError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise _missing(name, extra) from None


def check_installed(*names: str) -> None:
    """Raises DataError if a package of [experiments] is missing; for the start of long work."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise _missing(name, "experiments")


def _missing(name, extra):
    package = name.partition(".")[0]
    return DataError(f"{package} is not installed: pip install 'terngrad_tf[{extra}]'")
