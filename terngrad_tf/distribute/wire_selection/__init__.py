"""Choice of the quickest wire: a cost model, measured links, trials."""

__all__ = []
