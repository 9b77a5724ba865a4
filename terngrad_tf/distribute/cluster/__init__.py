"""Which processes there are: TF_CONFIG, lists of workers, how these meet, and how they end."""

__all__ = []
