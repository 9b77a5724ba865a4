"""What every part of the package needs: errors, arguments, processes, progress."""

__all__ = []
