"""A host of `benchmarks.local_steps.periods`, with TF_CONFIG set.

Arguments: ROUNDS STEPS MODE... Prints a line of JSON: `seconds` of a step by mode and round, and
the number of steps that "auto" has `taken`.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.time_to_accuracy import tensorflow_worker, workload
from terngrad_tf import DiLoCo, TernGradStrategy

# Before the clock starts: "auto" measures, and each mode has exchanged.
_BEFORE = 32


class _Clock(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == _BEFORE:
            self.start = time.perf_counter()
        self.end = time.perf_counter()


def training(strategy, mode):
    """Returns a model and its optimizer."""
    with strategy.scope():
        model = tensorflow_worker.network()
        model.set_weights(workload.initial_weights(0))
        inner = keras.optimizers.SGD(0.01, workload.MOMENTUM)
        optimizer = DiLoCo(inner, mode if mode == "auto" else int(mode))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss)
    return model, optimizer


def main(argv):
    """Runs the worker; `argv` is its command line."""
    rounds, steps, modes = int(argv[1]), int(argv[2]), argv[3:]
    strategy = TernGradStrategy()
    trainings = {mode: training(strategy, mode) for mode in modes}
    rng = np.random.default_rng(0)
    images = rng.random((workload.BATCH_SIZE, 28, 28, 1), dtype=np.float32)
    labels = rng.integers(workload.CLASSES, size=workload.BATCH_SIZE)
    data = tf.data.Dataset.from_tensors((images, labels)).repeat()
    seconds = {mode: [] for mode in modes}
    for number in range(rounds + 1):
        for mode, (model, _) in trainings.items():
            # A fit without a clock traces functions.
            clock, count = _Clock(), steps if number else 0
            model.fit(
                data,
                steps_per_epoch=_BEFORE + count,
                callbacks=[clock] if number else [],
                verbose=0,
            )
            if number:
                seconds[mode].append((clock.end - clock.start) / count)
    taken = trainings["auto"][1].steps_of_round if "auto" in trainings else None
    print(json.dumps({"seconds": seconds, "taken": taken}), flush=True)


if __name__ == "__main__":
    main(sys.argv)
