"""Measures memory of training large networks on photos with the programs, on two hosts.

    python -m benchmarks.large --nets=resnet_50,vgg_16
    python -m benchmarks.large --nets=resnet_50 --modes=phase_2

Makes photos of noise, converts them with `slim_data.build_image_data`, and trains each network on
them at 224 x 224: with `imagenet_distributed_train`, one process on each of two hosts of this
machine (see `lib/netns.sh`: Linux, root, iproute2), with ternary and with float gradients; and with
`imagenet_train` in one process, without an exchange. Reports the largest resident memory of a
process until its first step, from there to the last step, and after it, when the chief saves; and
the difference of the second figure from that of one process, in float32 copies of the weights.

"phase_2" is a ternary run that keeps snapshots, followed by a run in their subspace with
`subspace_train --shard_basis`, one process per host.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from absl import flags

from benchmarks.lib import cluster_hosts, figures, markdown, program

_NETS = flags.DEFINE_list("nets", ["resnet_50", "vgg_16"], "Networks, of terngrad_tf.models.")
MODES = ("alone", "float", "ternary", "phase_2")
_MODES = flags.DEFINE_multi_enum(*("modes", list(MODES), MODES), "Kinds of training; repeatable.")
_STEPS = flags.DEFINE_integer("steps", 20, "Steps of a run.", lower_bound=4)
_BATCH = flags.DEFINE_integer("batch_size", 2, "Photos per step and process.", lower_bound=1)
_COMPONENTS = flags.DEFINE_integer("components", 8, "Size of the subspace.", lower_bound=1)
_OPTIONS = flags.DEFINE_list("options", [], "Further flags of the training programs, without --.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")

NUM_HOSTS = 2
PREFIX, SUBNET, PORT = "tgm", "10.96.0", 4711
CLASSES = 4
SNAPSHOT_STEPS = 2
PHOTOS = 48
# Memory counts for steps from here on.
FIRST_STEP = 2
_STEP_LINE = re.compile(r"\bstep (\d+),")


def make_photos(folder):
    """Converts photos of noise; returns the folder with their TFRecords."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    for split, count in (("train", PHOTOS), ("validation", CLASSES)):
        for number in range(count):
            place = folder / split / f"class_{number % CLASSES}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (256, 256, 3), np.uint8)
            (place / f"{number}.jpg").write_bytes(tf.io.encode_jpeg(pixels).numpy())
    labels = folder / "labels.txt"
    labels.write_text("".join(f"class_{i}\n" for i in range(CLASSES)))
    command = cluster_hosts.command(
        "slim_data.build_image_data",
        labels_file=labels,
        train_directory=folder / "train",
        validation_directory=folder / "validation",
        output_directory=folder / "data",
        train_shards=2,
        validation_shards=1,
        num_threads=1,
    )
    environment = cluster_hosts.environment()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return folder / "data"


def _peak_mb(pid):
    """Returns the largest resident memory of a process since `_forget_peak`."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
        if found:
            return int(found[1]) / 1024
    return None


def _forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def watch(commands):
    """Runs programs side by side and reads the first one's lines.

    Returns:
        A dict per program: most MB until `FIRST_STEP` ("start"), until the last step ("steps"), and
            after it ("end"). A process that logs no step has only "end".
    """
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        started = []
        for command, log in zip(commands, logs, strict=True):
            output = subprocess.PIPE if not started else subprocess.DEVNULL
            environment = cluster_hosts.environment()
            process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=log, text=True
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        peaks = [{} for _ in started]

        def note(name):
            for process, found in zip(started, peaks, strict=True):
                if peak := _peak_mb(process.pid):
                    found[name] = peak
                    _forget_peak(process.pid)

        for line in started[0].stdout:
            print(line, end="", file=sys.stderr, flush=True)
            if found := _STEP_LINE.search(line):
                step = int(found[1])
                if step == FIRST_STEP:
                    note("start")
                elif step == _STEPS.value - 1:
                    note("steps")
        for process, found, log in zip(started, peaks, logs, strict=True):
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if status:
                log.seek(0)
                raise RuntimeError(f"A process failed:\n{log.read()[-3000:]}")
            found["end"] = usage.ru_maxrss / 1024
    return peaks


def _train_command(program, **options):
    command = cluster_hosts.command(f"terngrad_tf.bin.{program}", **options)
    return command + [f"--{option}" for option in _OPTIONS.value]


def train(network, net, mode, data_dir, folder):
    """Returns the result of `watch` for a run of a network."""
    common = {
        "net": net,
        "dataset_name": "folder",
        "num_classes": CLASSES,
        "data_dir": data_dir,
        "image_size": 224,
        "batch_size": _BATCH.value,
        "max_steps": _STEPS.value,
        "log_freq": 1,
        "learning_rate_decay_type": "fixed",
        "initial_learning_rate": 1e-5,
        "input_queue_memory_factor": 1,
        "grad_bits": 1 if mode in ("ternary", "phase_2") else 32,
        "train_dir": folder,
    }
    if mode == "phase_2":
        common["snapshot_every_steps"] = SNAPSHOT_STEPS
    if mode == "alone":
        return watch([_train_command("imagenet_train", **common)])
    common["worker_hosts"] = ",".join(network.addresses(PORT))
    return watch(
        [
            network.on_host(
                task, _train_command("imagenet_distributed_train", task_id=task, **common)
            )
            for task in range(NUM_HOSTS)
        ]
    )


def phase_2(network, data_dir, phase_1, folder):
    """Returns the result of `watch` for a run in the subspace with a sharded basis."""
    common = {
        "pretrained_weight_path": phase_1,
        "data_dir": data_dir,
        "epochs": -(-_STEPS.value * _BATCH.value * NUM_HOSTS // PHOTOS),
        "batch_size": _BATCH.value * NUM_HOSTS,
        "n_components": _COMPONENTS.value,
        "shard_basis": True,
        "train_dir": folder,
        "worker_hosts": ",".join(network.addresses(PORT)),
    }
    return watch(
        [
            network.on_host(task, _train_command("subspace_train", task_id=task, **common))
            for task in range(NUM_HOSTS)
        ]
    )


def num_weights(net):
    """Returns the number of trainable weights of a network."""
    from terngrad_tf import models

    model = models.build(net, CLASSES)
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


def table(rows):
    """Returns the rows as a Markdown table."""
    lines = []
    for row in rows:
        alone = next(
            (r for r in rows if (r["net"], r["mode"], r["process"]) == (row["net"], "alone", 0)), {}
        )
        copies = ""
        if row is not alone and row["mode"] != "phase_2" and "steps" in row and "steps" in alone:
            copies = f"{(row['steps'] - alone['steps']) / row['copy_mb']:+.2f}"
        cells = [f"{row[name]:.0f}" if name in row else "" for name in ("start", "steps", "end")]
        run = [row["net"], f"{row['copy_mb']:.0f}", row["mode"], row["process"]]
        lines.append([*run, *cells, copies])
    titles = "network | MB of a float32 copy | run | process | peak MB until step 2 | in steps"
    titles += " | when it saves | in steps, beyond one process: copies"
    return markdown.table(titles, lines)


def main():
    """Runs all modes and prints the table."""
    network = cluster_hosts.Network(PREFIX, SUBNET, NUM_HOSTS)
    rows = []

    def add(net, mode, peaks):
        copy_mb = 4 * num_weights(net) / 2**20
        rows.extend(
            {"net": net, "mode": mode, "process": i, "copy_mb": copy_mb, **found}
            for i, found in enumerate(peaks)
        )

    with tempfile.TemporaryDirectory() as name, network.up("none"):
        place = pathlib.Path(name)
        data_dir = make_photos(place)
        for net in _NETS.value:
            for mode in _MODES.value:
                folder = place / f"{net}_{mode}"
                peaks = train(network, net, mode, data_dir, folder)
                if mode == "phase_2":
                    add(net, "ternary, snapshots", peaks)
                    peaks = phase_2(network, data_dir, folder, place / f"{net}_subspace")
                add(net, mode, peaks)
                print(table(rows), flush=True)
    print(f"{_STEPS.value} steps, {_BATCH.value} photos per step and process")
    print(table(rows))
    if _JSON.value:
        figures.write_json(_JSON.value, {"rows": rows})


if __name__ == "__main__":
    program.run(main)
