"""Compares asynchronous and synchronous training: test accuracy, bytes pushed and pulled per step.

Two workers train LeNet on scikit-learn's handwritten digits with `mnist_distributed_train`, each on
its own host (network namespaces, see `lib/netns.sh`: Linux, root): synchronously with ternary
gradients, and asynchronously with ternary and with float gradients over one and two parameter
servers, which have their own hosts. All runs see the same number of examples. A synchronous step
takes a batch from each worker. An asynchronous step takes a batch from one worker, at half the
learning rate, so the rate per example is the same.

    python -m benchmarks.asynchronous --json=asynchronous.json

Bytes are counts of the network interfaces of the servers' hosts, headers included, from the first
log line of the run to the last, divided by the steps. The accuracy is that of the final weights on
the 360 test images; one image is 0.28 %.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the table shows the whole file.
"""

import collections
import contextlib
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks.lib import cluster_hosts, figures, markdown, means, program

NUM_WORKERS = 2
BATCH_SIZE = 32
# (kind, number of parameter servers): flags.
KINDS = {
    ("synchronous ternary", 0): {"grad_bits": 1},
    ("asynchronous ternary", 1): {"grad_bits": 1, "async_training": True},
    ("asynchronous ternary", 2): {"grad_bits": 1, "async_training": True},
    ("asynchronous float", 1): {"grad_bits": 32, "async_training": True},
    ("asynchronous float", 2): {"grad_bits": 32, "async_training": True},
}
PREFIX = "tgy"
SUBNET = "10.84.0"
PORT = 4711
TIMEOUT_SECONDS = 900

_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_STEPS = flags.DEFINE_integer(
    "steps", 540, "Asynchronous steps; synchronous runs take half this number.", lower_bound=120
)
_RATE = flags.DEFINE_float("learning_rate", 0.02, "Learning rate of synchronous training.")
_JSON = flags.DEFINE_string("json", "asynchronous.json", "File with the finished runs.")

# Skips step 0, logged when the first step is done.
_LINE = re.compile(r"Worker \d+: .*: step ([1-9]\d*), loss")


def commands(folder, num_servers, seed, chosen, addresses):
    """Returns the command line of each process, workers first."""
    workers, servers = addresses[:NUM_WORKERS], addresses[NUM_WORKERS:][:num_servers]
    asynchronous = bool(num_servers)
    share = 1 if asynchronous else NUM_WORKERS
    jobs = [("worker", i) for i in range(NUM_WORKERS)] + [("ps", i) for i in range(num_servers)]
    values = {
        "dataset_name": "digits",
        "data_dir": folder / "digits",
        "train_dir": folder / "run",
        "batch_size": BATCH_SIZE,
        "max_steps": _STEPS.value // share,
        "optimizer": "momentum",
        "initial_learning_rate": _RATE.value * share / NUM_WORKERS,
        "learning_rate_decay_type": "fixed",
        "clip_factor": 2.5,
        "quantize_logits": True,
        "seed": seed,
        "worker_hosts": ",".join(workers),
        "ps_hosts": ",".join(servers),
        **chosen,
    }
    module = "terngrad_tf.bin.mnist_distributed_train"
    return [
        cluster_hosts.command(module, **values, job_name=job, task_id=task) for job, task in jobs
    ]


def interface_bytes(network, hosts):
    """Returns the received and sent bytes of the hosts' interfaces."""
    totals = []
    for name in ("rx_bytes", "tx_bytes"):
        totals.append(0)
        for host in hosts:
            path = f"/sys/class/net/{network.interface(host)}/statistics/{name}"
            command = network.on_host(host, ["cat", path])
            totals[-1] += int(subprocess.run(command, check=True, capture_output=True).stdout)
    return totals


def train(network, command_lines, num_servers):
    """Runs the processes; returns bytes pushed and pulled per step, None without servers."""
    hosts = range(NUM_WORKERS, NUM_WORKERS + num_servers)
    with contextlib.ExitStack() as stack:
        started = []
        for index, command in enumerate(command_lines):
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                network.on_host(index, command),
                env=cluster_hosts.environment(),
                stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
                stderr=errors,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append((process, errors))
        marks = []
        for line in started[0][0].stdout:
            if found := _LINE.match(line):
                marks.append((int(found[1]), *interface_bytes(network, hosts)))
        for process, errors in started:
            if process.wait(timeout=TIMEOUT_SECONDS):
                errors.seek(0)
                raise RuntimeError(f"A process failed:\n{errors.read()[-3000:]}")
    if not num_servers:
        return None, None
    steps, received, sent = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    return received / steps, sent / steps


def accuracy(folder):
    """Returns the test accuracy of the final weights of a run."""
    from terngrad_tf import training

    config = training.EvalConfig(
        checkpoint_dir=str(folder / "run"),
        eval_dir=str(folder / "eval"),
        data=training.EvalDataConfig(data_dir=str(folder / "digits")),
        run_once=True,
        restore_avg_var=False,
    )
    with contextlib.redirect_stdout(sys.stderr):
        return training.evaluate(config).precision_at_1


def measure(kind, num_servers, seed):
    """Returns one run as a row of the table."""
    import slim_data

    network = cluster_hosts.Network(PREFIX, SUBNET, NUM_WORKERS + num_servers)
    with tempfile.TemporaryDirectory() as name, network.up("none"):
        folder = pathlib.Path(name)
        with contextlib.redirect_stdout(sys.stderr):
            slim_data.convert("digits", str(folder / "digits"), shard=True, train_shards=4)
        lines = commands(
            folder, num_servers, seed, KINDS[kind, num_servers], network.addresses(PORT)
        )
        since = time.perf_counter()
        pushed, pulled = train(network, lines, num_servers)
        return {
            "kind": kind,
            "servers": num_servers,
            "seed": seed,
            "accuracy": accuracy(folder),
            "pushed_bytes": pushed,
            "pulled_bytes": pulled,
            "seconds": time.perf_counter() - since,
        }


def settings():
    """Returns the settings that all runs of a file share."""
    return {"steps": _STEPS.value, "learning_rate": _RATE.value, "batch_size": BATCH_SIZE}


def table(runs):
    """Returns means over seeds as Markdown."""
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run["kind"], run["servers"]].append(run)
    lines = []
    for kind, servers in KINDS:
        if not (group := groups[kind, servers]):
            continue
        accuracies = [100 * run["accuracy"] for run in group]
        cells = [kind, servers or "", means.with_range(accuracies, 2)]
        for name in ("pushed_bytes", "pulled_bytes"):
            values = [run[name] for run in group if run[name] is not None]
            cells.append(f"{statistics.mean(values) / 1e3:.1f}" if values else "")
        lines.append(cells)
    titles = "training | servers | test accuracy | pushed kB a step | pulled kB a step"
    return markdown.table(titles, lines)


def main():
    """Trains the missing runs and prints the table."""
    runs = figures.Finished(_JSON.value, settings())
    chosen = [(*kind, seed) for seed, kind in itertools.product(map(int, _SEEDS.value), KINDS)]
    for run in runs.missing(chosen, "kind", "servers", "seed"):
        runs.add(measure(*run))
        print(json.dumps(runs[-1]), flush=True)
    print(f"\n{table(runs)}")


if __name__ == "__main__":
    program.run(main)
