"""Logs of a run for TensorBoard."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from slim_data.common.extras import check_installed


class Board:
    """Writes scalars and histograms into a folder.

    Args:
        steps_before: steps of the run from which this run continues; this run's steps are shown
            after these.
        first_step: steps done before a run begins or resumes. TensorBoard drops earlier events of
            later steps, which will be repeated. Default: drops none.

    Raises:
        DataError: TensorBoard is not installed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        steps_before: int = 0,
        first_step: int | None = None,
    ) -> None:
        check_installed("tensorboard")
        if first_step is not None:
            _write_start(folder, steps_before + first_step + 1)
        self._writer = tf.summary.create_file_writer(str(folder))
        self._steps_before = steps_before

    def scalars(self, values: Mapping[str, Any], step: int) -> None:
        """Writes numbers by tag of `common.tags`, and flushes them, so that a kill loses none."""
        with self._writer.as_default(step + self._steps_before):
            for tag, value in values.items():
                tf.summary.scalar(tag, value)
        self._writer.flush()

    def text(self, tag: str, lines: Sequence[str], step: int) -> None:
        """Writes lines of text."""
        with self._writer.as_default(step + self._steps_before):
            tf.summary.text(tag, lines)

    def histograms(self, values: Mapping[str, Any], step: int) -> None:
        """Writes a histogram of each tensor, by tag."""
        with self._writer.as_default(step + self._steps_before):
            for tag, value in values.items():
                tf.summary.histogram(tag, value)

    def counts(self, tag: str, counted: Sequence[tuple[float, int]], step: int) -> None:
        """Writes a histogram of (value, number of elements with the value), values ascending."""
        # `tf.summary.histogram` would need all elements.
        metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="histograms")
        )
        rows = [[value, value, count] for value, count in counted]
        with self._writer.as_default(step + self._steps_before):
            tf.summary.write(tag, tf.constant(rows, tf.float64), metadata=metadata)

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def _write_start(folder, step):
    """Makes TensorBoard ignore earlier records from a step on, which `tf.summary` cannot.

    TensorBoard reads files in the order of their names; this one precedes those that `tf.summary`
    creates from this second on.
    """
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    now = time.time()
    with tf.io.TFRecordWriter(os.path.join(folder, f"events.out.tfevents.{int(now):010d}")) as file:
        for event in ({"file_version": "brain.Event:2"}, {"step": step, "session_log": start}):
            file.write(tf.compat.v1.Event(wall_time=now, **event).SerializeToString())
