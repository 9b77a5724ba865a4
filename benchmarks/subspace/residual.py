"""Compares steps of phase 2 outside of the subspace: ternary gradients, or infrequent float ones.

Four workers train LeNet on a third of the images of Fashion-MNIST, or of other files in MNIST's
format, with batches of 128 for 3 epochs at the stage-1 program's schedule. The run keeps the last
40 snapshots, 16 per epoch, and continues for one epoch by P-BFGS with batches of 512 in their 32
components:

    python -m benchmarks.subspace.residual --raw_dir=/usr/share/datasets/fashion-mnist \
        --json=residual.json

The ways differ in their use of the gradient's part outside of the subspace, with the tutorial's
alpha of 0.001: no use; in every step, float or ternary; float in every 13th step, which takes the
same bytes as ternary in every step with 4 workers, with this alpha and with 13 times this alpha,
which moves the same distance. Bytes are those that a worker receives per step if each worker is a
separate host. Losses are the mean cross-entropy of all test images and of the first 10,000 training
images at the final weights.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the table shows the whole file.
"""

import collections
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile

from absl import flags

from benchmarks.lib import fashion, figures, markdown, means, program

NET = "lenet"
NUM_WORKERS = 4
EPOCHS = 3
BATCH_SIZE = 128
SNAPSHOTS_PER_EPOCH = 16
NUM_SNAPSHOTS = 40
NUM_PARTS = 3  # of the training images; phase 1 and 2 use the first part
NUM_TRAINING_IMAGES = 10000  # for the training loss
ALPHA = 0.001
WAYS = {
    "none": {"alpha": 0.0},
    "float, every step": {"alpha": ALPHA, "grad_bits": 32},
    "ternary, every step": {"alpha": ALPHA},
    "ternary, every 4th step": {"alpha": ALPHA, "residual_every": 4},
    "float, every 13th step": {"alpha": ALPHA, "grad_bits": 32, "residual_every": 13},
    "float, every 13th step, alpha 0.013": {
        **{"alpha": 13 * ALPHA, "grad_bits": 32, "residual_every": 13}
    },
}
# Title, factor and digits of a result.
QUANTITIES = {
    "test_accuracy": ("test accuracy / %", 100, 2),
    "test_loss": ("test loss", 1, 4),
    "training_loss": ("training loss", 1, 4),
    "received_bytes": ("bytes a step", 1, 0),
}
PHASE_1 = "phase 1"

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with the four files in MNIST's format.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_WAYS = flags.DEFINE_multi_enum(
    *("ways", list(WAYS), list(WAYS)), "Use of the gradient outside of the subspace; repeatable."
)
_RATE = flags.DEFINE_float("learning_rate", 0.02, "Highest rate of phase 1.")
_JSON = flags.DEFINE_string("json", "residual.json", "File with the finished runs.")


def settings():
    """Returns the settings that all runs of a file share."""
    return {
        **{"net": NET, "workers": NUM_WORKERS, "epochs": EPOCHS, "batch_size": BATCH_SIZE},
        **{"learning_rate": _RATE.value, "parts": NUM_PARTS},
        "ways": {way: WAYS[way] for way in _WAYS.value},
    }


def examples(folder, split, num_batches=-1):
    """Returns images and labels, preprocessed for evaluation."""
    import slim_data

    batches = slim_data.load("mnist", str(folder / "data"), split, 500, 28, False)
    return batches.take(num_batches)


def figures_of(folder, checkpoint):
    """Returns accuracy and losses of a checkpoint's weights."""
    import tensorflow as tf

    from benchmarks.lib import evaluation
    from terngrad_tf import models

    model = models.build(NET, 10)
    tf.train.Checkpoint(model=model).restore(checkpoint).expect_partial()
    data = examples(folder, "test"), examples(folder, "train", NUM_TRAINING_IMAGES // 500)
    (test_loss, accuracy), (training_loss, _) = evaluation.evaluate(model, *data)
    return {"test_accuracy": accuracy, "test_loss": test_loss, "training_loss": training_loss}


def first_phase(folder, seed):
    """Trains phase 1 and returns its figures."""
    from terngrad_tf import training

    result = training.train(
        training.TrainConfig(
            train_dir=str(folder / "phase_1"),
            epochs=EPOCHS,
            seed=seed,
            data=training.TrainingDataConfig(
                data_dir=str(folder / "data"), dataset_name="mnist", batch_size=BATCH_SIZE
            ),
            model=training.ModelConfig(net=NET),
            optimizer=training.OptimizerConfig(
                initial_learning_rate=_RATE.value,
                learning_rate_decay_type="linear",
                warmup_epochs=EPOCHS * 5 / 70,
                decay_epochs=EPOCHS * 90 / 70,
            ),
            checkpoints=training.CheckpointConfig(save_epochs=EPOCHS),
            snapshots=training.SnapshotConfig(
                per_epoch=SNAPSHOTS_PER_EPOCH, keep_max=NUM_SNAPSHOTS
            ),
            cluster=training.ClusterConfig(num_nodes=NUM_WORKERS, num_gpus=0),
        )
    )
    return figures_of(folder, result.checkpoint)


def second_phase(folder, seed, way):
    """Trains phase 2 in one of `WAYS` and returns its figures."""
    from terngrad_tf import phase_2
    from terngrad_tf.common import tags
    from terngrad_tf.training.logs import report

    train_dir = folder / way.replace(" ", "_")
    result = phase_2.train_in_subspace(
        phase_2.SubspaceConfig.of(
            train_dir=str(train_dir),
            data_dir=str(folder / "data"),
            pretrained_weight_path=str(folder / "phase_1"),
            pca_mat_path=str(folder / "subspace.safetensors"),
            # Then every difference is an effect of phase 2.
            start_at="last",
            epochs=1,
            num_nodes=NUM_WORKERS,
            num_gpus=0,
            seed=seed,
            **WAYS[way],
        )
    )
    received = report.read_scalars(train_dir)[tags.RECEIVED_BYTES].values()
    return {**figures_of(folder, result.checkpoint), "received_bytes": statistics.mean(received)}


def measure(data_dir, seed):
    """Yields the rows of a seed, phase 1 first."""
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        for name, source in (("train", f"{NUM_PARTS:05d}"), ("test", "00001")):
            shard = f"{name}-00000-of-{source}"
            os.symlink(os.path.join(data_dir, shard), folder / "data" / f"{name}-00000-of-00001")
        yield {"way": PHASE_1, "seed": seed, **first_phase(folder, seed)}
        for way in _WAYS.value:
            yield {"way": way, "seed": seed, **second_phase(folder, seed, way)}


def table(runs):
    """Returns means over seeds as Markdown, with minimum and maximum."""
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run["way"]].append(run)
    lines = []
    for way in filter(groups.get, (PHASE_1, *WAYS)):
        cells = [way]
        for name, (_, factor, digits) in QUANTITIES.items():
            found = [factor * run[name] for run in groups[way] if name in run]
            if found and digits:
                cells.append(means.with_range(found, digits))
            else:
                cells.append(f"{statistics.mean(found):,.0f}" if found else "")
        lines.append(cells)
    titles = " | ".join(title for title, _, _ in QUANTITIES.values())
    return markdown.table(f"outside of the subspace | {titles}", lines)


def main():
    """Trains the missing seeds and prints the table."""
    runs = figures.Finished(_JSON.value, settings())
    missing = runs.missing([(seed,) for seed in map(int, _SEEDS.value)], "seed")
    with tempfile.TemporaryDirectory() as data_dir:
        if missing:
            fashion.convert(_RAW_DIR.value, data_dir, train_shards=NUM_PARTS)
        for (seed,) in missing:
            runs.add(*measure(data_dir, seed))
            print(f"seed {seed}", flush=True)
    print(f"\n{table(runs)}")


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)
