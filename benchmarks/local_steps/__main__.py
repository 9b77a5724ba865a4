"""Compares local steps with gradients in every step: accuracy after the same images.

Trains a network on Fashion-MNIST, or other files in MNIST's format, on replicas that share batches
of 128 images, at a rate that warms up and falls linearly to 0, and evaluates the final weights and
their moving average:

    python -m benchmarks.local_steps --raw_dir=/usr/share/datasets/fashion-mnist

The ways to train are gradients in every step, and `DiLoCo` with 8, 32 and 128 steps per exchange:
each float, ternary and in codes of four bits, by the paper's rule and rotated; budgets of bits per
element; and at 32 steps other scales, outer rates and momenta, and exchanges that overlap with
steps. Each way trains at every rate of --learning_rates. The table shows the rate with the lowest
mean test loss of the average, and the difference of its accuracy to float gradients in every step,
in points, with p of Student's paired test over the common seeds. Bytes are those that a replica
receives per step if each replica is a separate host; for streams, in the last exchange.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the table shows the whole file.

The runs of docs/results/local_steps.md are in benchmarks/results/local_steps_rotated.jsonl and
benchmarks/results/local_steps.jsonl.
"""

import contextlib
import itertools
import pathlib
import sys
import tempfile

from absl import flags

from benchmarks.lib import fashion, figures, program
from benchmarks.local_steps import tables
from benchmarks.local_steps.tables import WAYS

BATCH_SIZE = 128
IMAGE_SIZE = 28

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with the four files in MNIST's format.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_RATES = flags.DEFINE_list("learning_rates", ["0.02", "0.05", "0.1"], "Highest inner rates.")
_NET = flags.DEFINE_enum("net", "lenet", ["lenet", "resnet_20"], "Network.")
_OPTIMIZER = flags.DEFINE_enum(
    "optimizer", "momentum", ["momentum", "abs_adam"], "Inner optimizer."
)
_REPLICAS = flags.DEFINE_integer("num_nodes", 4, "Replicas.", lower_bound=1)
_EPOCHS = flags.DEFINE_float("epochs", 4, "Passes through the data.", lower_bound=0.01)
_WAYS = flags.DEFINE_list(
    "only", None, "Names of ways to train, or parts of several names. Default: all."
)
_JSON = flags.DEFINE_string("json", "local_steps.json", "File with the finished runs.")


def settings():
    """Returns the settings that all runs of a file share."""
    shared = {"net": _NET.value, "replicas": _REPLICAS.value, "epochs": _EPOCHS.value}
    # Files of momentum SGD do not name the optimizer.
    other = {} if _OPTIMIZER.value == "momentum" else {"optimizer": _OPTIMIZER.value}
    return shared | other


def train(data_dir, folder, way, rate, seed):
    """One run's row."""
    from terngrad_tf import training

    result = training.train(
        training.TrainConfig.of(
            train_dir=str(folder / "run"),
            data_dir=str(data_dir),
            dataset_name="mnist",
            net=_NET.value,
            image_size=IMAGE_SIZE,
            batch_size=BATCH_SIZE,
            num_nodes=_REPLICAS.value,
            num_gpus=0,
            epochs=_EPOCHS.value,
            seed=seed,
            optimizer=_OPTIMIZER.value,
            initial_learning_rate=rate,
            learning_rate_decay_type="linear",
            warmup_epochs=_EPOCHS.value / 20,
            decay_epochs=_EPOCHS.value,
            **WAYS[way],
        )
    )
    row = {"way": way, "rate": rate, "seed": seed, "received_bytes": result.traffic.received_bytes}
    for prefix, averages in (("", True), ("last_", False)):
        row |= {
            f"{prefix}{name}": value
            for name, value in evaluate(data_dir, result.checkpoint, averages).items()
        }
    return row


def evaluate(data_dir, checkpoint, averages):
    """Returns test accuracy and loss of a checkpoint's weights or moving average."""
    import slim_data
    from benchmarks.lib import evaluation
    from terngrad_tf.training.evaluation import evaluator
    from terngrad_tf.training.storage import run_folder

    run = run_folder.read_run(pathlib.Path(checkpoint).parent)
    model, _ = evaluator.restore_network(checkpoint, run, averages)
    examples = slim_data.load("mnist", str(data_dir), "test", 500, IMAGE_SIZE, False)
    ((loss, accuracy),) = evaluation.evaluate(model, examples)
    return {"accuracy": accuracy, "loss": loss}


def main():
    """Trains the missing runs and prints the table."""
    runs = figures.Finished(_JSON.value, settings())
    ways = [
        way
        for way in WAYS
        if _WAYS.value is None
        or any(name == way if name in WAYS else name in way for name in _WAYS.value)
    ]
    chosen = itertools.product(map(int, _SEEDS.value), ways, map(float, _RATES.value))
    missing = runs.missing(chosen, "seed", "way", "rate")
    with tempfile.TemporaryDirectory() as data_dir:
        if missing:
            fashion.convert(_RAW_DIR.value, data_dir, train_shards=4)
        for seed, way, rate in missing:
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
                runs.add(train(data_dir, pathlib.Path(folder), way, rate, seed))
            print(f"{way}, {rate}, seed {seed}", flush=True)
    print(f"\n{tables.table(runs)}")


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)
