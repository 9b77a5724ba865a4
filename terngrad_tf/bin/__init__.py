"""Command-line programs; each has `main(argv)` and the console entry point `run()`."""

__all__ = []
