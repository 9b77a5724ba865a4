"""Jobs of a cluster over ssh, for the scripts with the names of TernGrad's."""

__all__ = []
