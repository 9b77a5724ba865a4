"""The project's version, which this package, standing alone, says itself."""

__all__ = ["__version__"]

__version__ = "0.1.0"
