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
        folder: path.
        steps_before: steps of the run from which this run continues; TensorBoard shows this run's
            steps after these. Default 0.
        first_step: steps done before a run begins or resumes. TensorBoard drops earlier events of
            later steps, which will be repeated. Default: no events are dropped.

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
        """Writes numbers and flushes them to the file system, so that a kill loses none.

        Args:
            values: dict from a tag of `terngrad_tf.common.tags` to a number.
            step: number of steps done.
        """
        with self._writer.as_default(step + self._steps_before):
            for tag, value in values.items():
                tf.summary.scalar(tag, value)
        self._writer.flush()

    def text(self, tag: str, lines: Sequence[str], step: int) -> None:
        """Writes lines of text, see `scalars`."""
        with self._writer.as_default(step + self._steps_before):
            tf.summary.text(tag, lines)

    def histograms(self, values: Mapping[str, Any], step: int) -> None:
        """Writes a histogram of each tensor.

        Args:
            values: dict from a tag to a tensor.
            step: number of steps done.
        """
        with self._writer.as_default(step + self._steps_before):
            for tag, value in values.items():
                tf.summary.histogram(tag, value)

    def counts(self, tag: str, counted: Sequence[tuple[float, int]], step: int) -> None:
        """Writes a histogram of counted elements.

        Args:
            tag: tag of the histogram.
            counted: list of (value, number of elements with the value), values ascending.
            step: number of steps done.
        """
        # `tf.summary.histogram` would need all the elements.
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
    """Makes TensorBoard ignore earlier records from a step on.

    `tf.summary` cannot do so. TensorBoard reads files in the order of their names, and this file's
    name precedes those that `tf.summary` creates from this second on.
    """
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    now = time.time()
    with tf.io.TFRecordWriter(os.path.join(folder, f"events.out.tfevents.{int(now):010d}")) as file:
        for event in ({"file_version": "brain.Event:2"}, {"step": step, "session_log": start}):
            file.write(tf.compat.v1.Event(wall_time=now, **event).SerializeToString())
