"""Command-line programs, each with `main(argv)` and the console entry point `run()`."""

__all__ = []
