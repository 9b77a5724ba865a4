"""Files that may come from anywhere: opened, downloaded, unpacked and written safely."""

__all__ = []
