"""Measures how long many processes on one machine take to form a cluster; checks equal results.

    python -m benchmarks.many_processes --processes=16

Each process is a worker with its own port and trains a small network on scikit-learn's digits with
`TernGradStrategy`. Reports the seconds from the start of the first process until all have imported
TensorFlow, from there until all are one cluster, until all have taken the first step, and for the
remaining steps; the total memory; and whether all processes end with the same weights and optimizer
state, bit for bit. If not, the exit status is 1.
"""

import hashlib
import json
import pathlib
import sys
import time

from absl import flags

from benchmarks.lib import cluster_hosts, figures, markdown, program

_PROCESSES = flags.DEFINE_integer("processes", 16, "Number of processes.", lower_bound=2)
_STEPS = flags.DEFINE_integer("steps", 20, "Steps after the first.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 4, "Images per step and process.", lower_bound=1)
_GRAD_BITS = flags.DEFINE_integer("grad_bits", 1, "The strategy's grad_bits.")
_WIRE = flags.DEFINE_string("wire", "auto", "The strategy's wire.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")
_WORKER = flags.DEFINE_bool("worker", False, "Set by the benchmark itself.")


def _report(**figures_of_stage):
    """Reports the end of a stage, and waits for the other processes."""
    now = {"time": time.monotonic(), "cpu_seconds": time.process_time()}
    print(json.dumps({**figures_of_stage, **now}), flush=True)
    if not sys.stdin.readline():
        sys.exit("many_processes: the benchmark has ended")


def _work():
    """Runs one process: prints a line of JSON after each stage."""
    import keras
    import tensorflow as tf

    import terngrad_tf
    from benchmarks.lib import digits

    images, labels = digits.load(8)["train"]
    _report(stage="imported")
    strategy = terngrad_tf.TernGradStrategy(grad_bits=_GRAD_BITS.value, wire=_WIRE.value)
    _report(stage="one cluster")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(64, "relu"),
                keras.layers.Dense(10, name="logits"),
            ]
        )
        model.compile(
            keras.optimizers.Adam(0.003),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    batches = batches.batch(_BATCH.value * strategy.num_processes, drop_remainder=True)
    model.fit(batches, steps_per_epoch=1, verbose=0)
    _report(stage="first step")
    model.fit(batches, steps_per_epoch=_STEPS.value, verbose=0)
    digest = hashlib.sha256()
    for variable in model.variables + model.optimizer.variables:
        digest.update(variable.numpy().tobytes())
    fields = pathlib.Path("/proc/self/smaps_rollup").read_text().split()
    _report(
        stage="last step",
        digest=digest.hexdigest(),
        pss_mb=int(fields[fields.index("Pss:") + 1]) / 1024,
    )


def measure(count):
    """Runs a cluster of `count` processes.

    Returns:
        Dict with "seconds" of each stage since the previous one, "cpu_seconds" of all processes in
        it, "pss_mb" of all processes, and "digests", the set of their results.
    """
    cluster = {"worker": [f"127.0.0.1:{port}" for port in cluster_hosts.free_ports(count)]}
    own = (_STEPS, _BATCH, _GRAD_BITS, _WIRE)
    options = {flag.name: flag.value for flag in own}
    command = cluster_hosts.command("benchmarks.many_processes", worker=True, **options)
    seconds, cpu_seconds, workers, before, cpu_before = {}, {}, [], time.monotonic(), 0.0
    try:
        for index in range(count):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            environment = cluster_hosts.environment(TF_CONFIG=json.dumps(config))
            workers.append(cluster_hosts.Process(command, environment))
        for _ in range(4):
            answers = [worker.answer() for worker in workers]
            now = max(answer["time"] for answer in answers)
            cpu_now = sum(answer["cpu_seconds"] for answer in answers)
            stage = answers[0]["stage"]
            seconds[stage], cpu_seconds[stage] = now - before, cpu_now - cpu_before
            before, cpu_before = now, cpu_now
            for worker in workers:
                worker.ask("go on")
    finally:
        for worker in workers:
            worker.kill()
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "pss_mb": sum(answer["pss_mb"] for answer in answers),
        "digests": {answer["digest"] for answer in answers},
    }


def main():
    """Measures and prints a table."""
    if _WORKER.value:
        return _work()
    found = measure(_PROCESSES.value)
    titles = f"{_PROCESSES.value} processes: all have reached | seconds since the previous stage"
    lines = [[stage, f"{seconds:.1f}"] for stage, seconds in found["seconds"].items()]
    print(markdown.table(titles, lines))
    print(f"{found['pss_mb'] / 1024:.1f} GB in total")
    if _JSON.value:
        figures.write_json(_JSON.value, {**found, "digests": len(found["digests"])})
    if len(found["digests"]) > 1:
        sys.exit(f"many_processes: {len(found['digests'])} different results")
    print("all ended with the same bits")


if __name__ == "__main__":
    program.run(main)
