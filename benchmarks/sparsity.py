"""Measures how sparse the codes of real gradients are, and the resulting bytes of the wires.

    python -m benchmarks.sparsity --raw_dir=/usr/share/datasets/fashion-mnist --json=sparsity.json

Trains LeNet on Fashion-MNIST with replicas of 16 images per step, and reports means over the last
steps: the share of nonzero codes of the first replica, its entropy (for independent codes), and the
bytes that each replica would receive if each were a separate host, relative to a float32 ring. No
data leaves the process: the bytes are counted, for streams with the padding of their messages.
"""

import math
import statistics
import tempfile

from absl import flags

from benchmarks.lib import fashion, figures, markdown, program

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with the four files in MNIST's format.")
_REPLICAS = flags.DEFINE_list("replicas", ["2", "4", "8"], "Numbers of replicas.")
_CLIP_FACTORS = flags.DEFINE_list("clip_factors", ["0", "2.5"], "Standard deviations to clip at.")
_STEPS = flags.DEFINE_integer("steps", 300, "Steps before the reported ones.", lower_bound=0)
_TOLD = flags.DEFINE_integer("told_steps", 20, "Number of reported steps.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 16, "Images per step and replica.", lower_bound=1)
_RATE = flags.DEFINE_float("learning_rate", 0.01, "Rate of SGD with momentum 0.9.")
_WIRES = flags.DEFINE_list("wires", ["auto", "sparse", "sparse_bidirectional"], "Compared wires.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")


def entropy(share):
    """Returns the bits of a code that is 0 with probability `1 - share`, else 1 or -1 alike."""
    if share in (0, 1):
        return share
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share) + share


def measure(data_dir, num_replicas, clip_factor, wire):
    """Returns means over the reported steps: share of codes, received bytes, and the ratio."""
    import keras

    import slim_data
    import terngrad_tf

    class Notes(keras.callbacks.Callback):
        """Records the exchanges of the last steps."""

        def __init__(self):
            super().__init__()
            self.ratios, self.received, self.shares = [], [], []

        def on_train_batch_end(self, batch, logs=None):
            """Called by `fit`."""
            if batch < _STEPS.value:
                return
            codes = strategy.gradient_statistics.values()
            zeros = sum(c.zero for c in codes)
            others = sum(c.negative + c.positive for c in codes)
            self.shares.append(others / (zeros + others))
            self.ratios.append(strategy.traffic.compression_ratio)
            self.received.append(strategy.traffic.received_bytes)

    keras.utils.set_random_seed(1)
    strategy = terngrad_tf.TernGradStrategy(
        num_replicas,
        wire=wire,
        statistics_freq=1,
        quantization=terngrad_tf.Quantization(rotate=False, clip_factor=clip_factor),
    )
    notes = Notes()
    with strategy.scope():
        model = terngrad_tf.models.build("lenet", num_classes=10)
        model.compile(
            keras.optimizers.SGD(_RATE.value, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    batches = slim_data.load("mnist", data_dir, "train", _BATCH.value * num_replicas, 28, True)
    steps = _STEPS.value + _TOLD.value
    model.fit(batches, steps_per_epoch=steps, verbose=0, callbacks=[notes])
    return {
        "weights": model.count_params(),
        "nonzero": statistics.mean(notes.shares),
        "entropy": statistics.mean(map(entropy, notes.shares)),
        "received_bytes": statistics.mean(notes.received),
        "fewer_bytes": statistics.mean(notes.ratios),
        "wire": strategy.traffic.wire,
    }


def main():
    """Measures all combinations and prints the table."""
    rows = []
    with tempfile.TemporaryDirectory() as data_dir:
        fashion.convert(_RAW_DIR.value, data_dir)
        titles = "clip | replicas | wire | nonzero, % | entropy, bits | received kB | fewer bytes"
        print(markdown.head(titles))
        for clip_factor in map(float, _CLIP_FACTORS.value):
            for num_replicas in map(int, _REPLICAS.value):
                for wire in _WIRES.value:
                    row = measure(data_dir, num_replicas, clip_factor, wire)
                    name = f"auto ({row['wire']})" if wire == "auto" else wire
                    cells = [f"{clip_factor:g}", num_replicas, name, f"{100 * row['nonzero']:.2f}"]
                    cells += [f"{row['entropy']:.3f}", f"{row['received_bytes'] / 1e3:.1f}"]
                    cells += [f"{row['fewer_bytes']:.1f}"]
                    print(markdown.row(cells), flush=True)
                    rows.append(
                        {"clip_factor": clip_factor, "replicas": num_replicas, "mode": wire, **row}
                    )
    if _JSON.value:
        settings = {"batch_size": _BATCH.value, "steps": _STEPS.value}
        figures.write_json(_JSON.value, {"settings": settings, "rows": rows})


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)
