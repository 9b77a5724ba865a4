"""Packages that only an extra of terngrad_tf installs."""

import importlib
import importlib.util
from typing import Any

from slim_data.common.errors import DataError

# Packages of [experiments] that slim_data uses and that no core package installs.
_PACKAGES = ("defusedxml", "scipy", "sklearn")


def import_extra(name: str, extra: str = "experiments") -> Any:
    """Imports a module of an optional package at its use, since most are slow and rarely needed.

    Args:
        name: dotted name of the module.
        extra: the extra that installs it.

    Raises:
        DataError: the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise _missing(name, extra) from None


def check_installed() -> None:
    """Raises DataError if the extra that the programs need is not installed."""
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise _missing(name, "experiments")


def _missing(name, extra):
    package = name.partition(".")[0]
    return DataError(f"{package} is not installed: pip install 'terngrad_tf[{extra}]'")
