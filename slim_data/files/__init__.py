"""Opens, downloads, unpacks and writes untrusted files safely."""

__all__ = []
