"""Reports of runs: one HTML file each, which needs no network to be read."""

from terngrad_tf.training.reports.writing import write, write_or_warn

__all__ = ["write", "write_or_warn"]
