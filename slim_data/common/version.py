"""The project's version, repeated here because this package stands alone."""

__all__ = ["__version__"]

__version__ = "0.1.0"
