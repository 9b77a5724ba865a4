"""Reports of runs: one HTML file each, readable without a network."""

from terngrad_tf.reports.writing import write, write_or_warn

__all__ = ["write", "write_or_warn"]
