"""Telemetry of a run in TensorBoard and as JSON lines: the callback `Telemetry`."""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common import strict_json, tags
from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.common.files import open_regular
from terngrad_tf.distribute import private
from terngrad_tf.distribute.telemetry.measurements import WINDOW, StepTelemetry
from terngrad_tf.distribute.telemetry.model_steps import steps_of

FILE = "telemetry.jsonl"
WriteScalars = Callable[[Mapping[str, float], int], None]


class Telemetry(keras.callbacks.Callback):
    """Writes the cost and loss of gradient exchanges to TensorBoard and a file of JSON lines.

    A record holds the means over the steps since the last record, at most 128; `StepTelemetry`
    describes the values. TensorBoard gets scalars `traffic/...`, `ternary/...` and `speed/...`;
    `telemetry.jsonl` gets a line with null for missing values. Only the chief of a cluster writes.
    A resumed run skips steps that the file already holds.

    Example:
    >>> import tempfile
    >>> strategy = terngrad_tf.TernGradStrategy(num_nodes=2, telemetry_freq=4)
    >>> with strategy.scope(), tempfile.TemporaryDirectory() as folder:
    ...     model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    ...     history = model.fit(tf.ones([8, 1]), tf.ones([8, 1]), batch_size=2, verbose=0,
    ...                         callbacks=[terngrad_tf.Telemetry(folder, every=4)])
    ...     print(sorted(os.listdir(folder))[-1])
    telemetry.jsonl

    Args:
        log_dir: folder of both; created if missing.
        every: steps from one record to the next. Default 100.
        write: function of a dict from tags to numbers and of the step that writes the scalars, also
            those of repeated steps. Default: write an event file in `log_dir`.

    Raises:
        ValueError: `every` is out of range; or, in `fit`, the strategy's `telemetry_freq` is 0.
    """

    model: keras.Model

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        every: int = 100,
        *,
        write: WriteScalars | None = None,
    ) -> None:
        super().__init__()
        check(is_integer(every, 1), "every", "must be a positive integer", every)
        # Training may change the working folder.
        self._folder = pathlib.Path(log_dir).absolute()
        self._every = every
        self._write_scalars = write or self._write_file
        self._repeats = write is not None
        self._writer: tf.summary.SummaryWriter | None = None
        self._told_wires: list[str] = []
        self._writes = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds the measurements, and the steps in the file."""
        strategy = self.model.distribute_strategy
        self._operations = private.gradient_ops(strategy)
        self._measurements = getattr(self._operations, "telemetry", None)
        if self._measurements is None or not self._measurements.freq:
            raise ValueError(
                "`Telemetry` needs a strategy that measures: `telemetry_freq` must be a positive"
                " integer. Received: telemetry_freq=0"
            )
        step = steps_of(self.model)
        self._due = step // self._every + 1
        self._count = self._measurements.count
        self._told: set[int] = set()
        self._writes = getattr(strategy, "is_chief", True)
        if self._writes and step:
            self._told = set(read_records(self._folder / FILE))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes a record if it is due."""
        if not self._writes:
            return
        step = steps_of(self.model)
        if step < (self._due - 1) * self._every:
            # Those before were of an optimizer that this training does not use.
            self._due = -(-step // self._every)
        if step < self._due * self._every:
            return
        self._due = step // self._every + 1
        count = self._measurements.count
        if count > self._count and (self._repeats or step not in self._told):
            self._write(step, self._measurements.mean(min(count - self._count, WINDOW)))
        self._count = count

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Closes the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, step: int, mean: StepTelemetry) -> None:
        found = {tag: getattr(mean, name) for tag, name in tags.TELEMETRY.items()}
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_scalars({tag: v for tag, v in found.items() if v is not None}, step)
        if step in self._told:
            return
        # Later records are of other steps, or of a run before: this one replaces them.
        self._told = {told for told in self._told if told < step}
        values = dataclasses.asdict(mean) | {tags.TELEMETRY[tag]: v for tag, v in found.items()}
        line = json.dumps({**values, "step": step, "time": time.time()}, allow_nan=False)
        # Concurrent readers never see half a line.
        with open(self._folder / FILE, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def _write_file(self, scalars: Mapping[str, float], step: int) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
            self._told_wires = []
        reasons = self._operations.wire_choices
        with self._writer.as_default(step):
            if reasons != self._told_wires:
                tf.summary.text(tags.WIRE_CHOICES, reasons)
                self._told_wires = reasons
            for tag, value in scalars.items():
                tf.summary.scalar(tag, value)
        self._writer.flush()


def read_records(path: pathlib.Path) -> dict[int, dict[str, Any]]:
    """Records in a file of JSON lines by step, ascending.

    Skips truncated and foreign lines, or a missing file. After a smaller step, a run has started
    again: its later records before do not count.
    """
    records: dict[int, dict[str, Any]] = {}
    try:
        with open_regular(path) as file:
            lines = file.read().splitlines()
    except (OSError, ValueError):
        return records
    for line in lines:
        try:
            record = strict_json.parse_json(line)
            step = record["step"]
        except (ValueError, TypeError, KeyError):
            continue
        if is_integer(step, 0):
            if records and step < next(reversed(records)):
                records = {before: found for before, found in records.items() if before < step}
            records[step] = record
    return records
