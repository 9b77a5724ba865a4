"""The processes of a cluster: `TF_CONFIG`, lists of workers, rendezvous and exit statuses."""

__all__ = []
