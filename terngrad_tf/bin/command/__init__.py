"""The command `terngrad` and its own subcommands."""

__all__ = []
