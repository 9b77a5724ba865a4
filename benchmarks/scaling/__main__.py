"""Predicts the step time of AlexNet on 2 to 512 workers from measured costs; checks the model.

    python -m benchmarks.scaling --json=scaling.json

Each worker is a host that computes for `--compute_ms` per step and then exchanges AlexNet's 61
million gradients. The model has no overlap with the backward pass, and no two hosts share a link or
a core.

    step      = compute + codec + wire
    codec     = measured seconds per element (scales, encoding, adding, decoding; for this number of
                workers and the wire that "auto" chooses, or "bidirectional") * elements; 0 for
                float32
    wire      = bytes received * (8 / rate + measured seconds per byte of TensorFlow's transport)
                + collectives * measured seconds to start one
                + consecutive messages * measured seconds of a small message
                + messages beside another * measured seconds of an additional message
    messages  = consecutive: 2 (N-1) for a ring all-reduce, N-1 for a ring all-gather, 1 for an
                all-to-all, with N-2 beside it; ternary gradients have another all-to-all for the
                scales; all of these for each bucket

The codec runs as in training, between hosts that answer at once. The transport is measured between
two hosts of this machine with a core each, joined by a link without a limit. The time of a small
message is the difference of a ring all-reduce of two hosts, which has two messages, and an
all-gather, which has one; many of them run in one call, whose own cost cancels out. Hosts are
network namespaces (see `lib/netns.sh`: Linux, root, iproute2).

The check measures whole steps on `--hosts` hosts of this machine, which share its cores: the
expected times of codec and transport are multiplied by the number of threads per core.
"""

import itertools
import json
import os
import statistics
import sys
import time

from absl import flags

from benchmarks.cluster import models
from benchmarks.lib import cluster_hosts, figures, program
from benchmarks.scaling import picture, tables

_WORKERS = flags.DEFINE_list(
    "workers", ["2", "4", "8", "16", "32", "64", "128", "256", "512"], "Numbers of workers."
)
_COMPUTE = flags.DEFINE_float("compute_ms", 100.0, "Computing time per step in milliseconds.")
_RATE = flags.DEFINE_integer("rate_mbit", 1000, "Rate of the links, in Mbit/s.", lower_bound=1)
_HOSTS = flags.DEFINE_list("hosts", ["2", "4"], "Numbers of hosts of the check.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measured rounds; the median counts.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File of the figures: read if it exists, else written.")
_IMAGES = flags.DEFINE_string("images", None, "Folder to draw scale_*.svg in.")
_PROCESS = flags.DEFINE_string("process", None, "Set by the benchmark itself.")

COMMAND = "python -m benchmarks.scaling"
PREFIX = "tgs"
SUBNET = "10.82.0"
PORT = 4711
# Size of the measured bucket.
ELEMENTS = 4 * 2**20
SMALL_ROUNDS = 50
# Small collectives within one call: few and many.
REPEATS = (1, 41)


class InstantProcesses:
    """Replaces `ProcessGroup`: all other hosts send the same data at once."""

    rank = 0

    def __init__(self, size):
        self.size = size

    def all_reduce_sum(self, tensor):
        return tensor

    def all_to_all(self, tensor):
        return tensor

    def all_gather(self, tensor):
        import tensorflow as tf

        return tf.tile(tensor[tf.newaxis], [self.size] + [1] * tensor.shape.rank)


def instant_context(num_hosts):
    """Returns the `ReductionContext` of one worker on each of `num_hosts` hosts."""
    from terngrad_tf.distribute.exchange import buckets as exchange

    return exchange.ReductionContext(["/cpu:0"], num_hosts, InstantProcesses(num_hosts))


def codec_seconds(num_workers, wire):
    """Returns the measured seconds per element of a host's codec."""
    import tensorflow as tf

    from terngrad_tf.distribute import Quantization
    from terngrad_tf.distribute.exchange import buckets as exchange

    context, quantization = instant_context(num_workers), Quantization()
    gradient = tf.random.stateless_normal([ELEMENTS], [1, 2])

    @tf.function(autograph=False)
    def reduce(gradient, step):
        measured = quantization.local_scales([gradient], num_workers)
        bucket = exchange.Bucket(
            context=context,
            quantization=quantization,
            gradients=[[gradient]],
            measured=[measured],
            indices=[0],
            step=step,
        )
        ((total,),), *_ = exchange.reduce_bucket(bucket.with_shared_scales(), wire)
        return total

    seconds = _median_seconds(lambda: reduce(gradient, tf.constant(0)).numpy(), _ROUNDS.value)
    return seconds / ELEMENTS


def transport_seconds(strategy):
    """Measures TensorFlow's transport between two hosts.

    Returns:
        Dict of seconds: per `byte` of a large message, per small `message`, to start a
            `collective`, and `beside`, for an additional small message at the same time.
    """
    import tensorflow as tf

    group = strategy.extended.process_group

    def chain(collective):
        def run(count):
            word = tf.zeros([1])
            for _ in range(count):
                word = collective(word)
            return word

        return run

    def beside(count):
        words = tf.random.uniform([count, group.size, 1])
        return tf.add_n([group.all_to_all(word) for word in tf.unstack(words)])

    def seconds_of_one(repeated):
        """Returns the seconds of an additional collective within the same call."""
        few, many = (
            _median_seconds(_compiled(lambda n=n: repeated(n)), SMALL_ROUNDS) for n in REPEATS
        )
        return (many - few) / (REPEATS[1] - REPEATS[0])

    def large():
        return group.all_gather(tf.zeros([ELEMENTS // 4], tf.int32))

    def ring(count):
        def all_reduce(word):
            return tf.distribute.get_replica_context().all_reduce("SUM", word)

        return strategy.run(chain(all_reduce), args=(count,))

    reduce = seconds_of_one(ring)
    gather = seconds_of_one(chain(lambda word: group.all_gather(word)[0]))
    message = max(reduce - gather, 0.0)
    return {
        "byte": max(_median_seconds(_compiled(large), _ROUNDS.value) - gather, 0.0) / ELEMENTS,
        "message": message,
        "collective": max(gather - message, 0.0),
        "beside": max(seconds_of_one(beside), 0.0),
    }


def _compiled(function):
    import tensorflow as tf

    run = tf.function(function, autograph=False)
    return lambda: run().numpy()


def _median_seconds(run, rounds):
    run()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def buckets_of(shapes):
    """Returns the sizes of the gradients of each bucket."""
    import tensorflow as tf

    from terngrad_tf.distribute.exchange import buckets as exchange

    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    return [[sizes[i] for i in bucket] for bucket in exchange.buckets(sizes)]


def exchange_seconds(num_workers, costs, rate, slowdown=1.0):
    """Returns the expected seconds of an exchange of AlexNet's gradients.

    Args:
        costs: dict of `transport_seconds` with `codec`, seconds per element by mode and number.
        rate: rate of the links in bytes per second.
        slowdown: factor on the measured times of codec and transport.

    Returns:
        Dict of seconds by mode: `float32` and the modes of `tables.WIRES`.
    """
    from terngrad_tf.distribute import Quantization
    from terngrad_tf.distribute.exchange.traffic import float_traffic

    def started(messages, beside=0):
        return (
            costs["collective"] + messages * costs["message"] + beside * costs["beside"]
        ) * slowdown

    def wire_seconds(num_bytes):
        return num_bytes * (1 / rate + slowdown * costs["byte"])

    all_reduce = started(2 * (num_workers - 1))
    all_gather = started(num_workers - 1)
    all_to_all = started(1, num_workers - 2)
    collectives_of = {
        "allgather": all_gather,
        "alltoall": all_to_all + all_gather,
        "allreduce": all_reduce,
        "bidirectional": all_to_all + all_gather,
    }
    context, quantization = instant_context(num_workers), Quantization()
    buckets = buckets_of(models.ALEXNET_SHAPES)
    num_elements = sum(map(sum, buckets))
    float32 = float_traffic(4 * num_elements, num_workers)
    seconds = {"float32": all_reduce + wire_seconds(float32.received_bytes)}
    for mode, wire in tables.WIRES.items():
        seconds[mode] = slowdown * costs["codec"][mode][num_workers] * num_elements
        for sizes in buckets:
            traffic = context.wire(wire, sizes, quantization).traffic
            seconds[mode] += wire_seconds(traffic.received_bytes)
            seconds[mode] += all_to_all + collectives_of[traffic.wire]
    return seconds


def _measure_step(num_hosts):
    """Returns the median seconds of AlexNet's steps on hosts of this machine, by mode."""
    network = cluster_hosts.Network(PREFIX, SUBNET, num_hosts)
    # Separate processes, as in benchmarks/cluster/__main__.py.
    groups = (("no_exchange", *tables.WIRES), ("float32",))

    def commands_of(modes, port):
        del port
        command = [sys.executable, "-m", "benchmarks.cluster.tensorflow_worker", ",".join(modes)]
        threads = str(_threads(num_hosts))
        return [[*command, "alexnet", network.interface(i), threads, "1"] for i in range(num_hosts)]

    with (
        network.up(f"{_RATE.value}mbit"),
        network.workers(PORT, groups, commands_of) as answers_of,
    ):

        def run(mode):
            return max(answer["seconds"] for answer in answers_of(mode, 1))

        modes = list(itertools.chain(*groups))
        for mode in modes:
            run(mode)
        seconds = {mode: [] for mode in modes}
        for _ in range(_ROUNDS.value):
            for mode in modes:
                seconds[mode].append(run(mode))
    return {mode: statistics.median(values) for mode, values in seconds.items()}


def _threads(num_hosts):
    return max(1, (os.cpu_count() or 1) // num_hosts)


def _measure_transport():
    network = cluster_hosts.Network(PREFIX, SUBNET, 2)
    options = {"process": "transport", "rounds": _ROUNDS.value}
    command = cluster_hosts.command("benchmarks.scaling", **options)
    with network.up("none"), network.processes(PORT, [command] * 2) as hosts:
        return [host.answer() for host in hosts][0]


def _work():
    import tensorflow as tf

    import terngrad_tf

    tf.config.threading.set_intra_op_parallelism_threads(_threads(2))
    print(json.dumps(transport_seconds(terngrad_tf.TernGradStrategy())), flush=True)


def measure(workers, hosts):
    """Measures the costs and the check; returns costs and rows, see `tables`."""
    rate = _RATE.value * 1e6 / 8
    costs = _measure_transport()
    costs["codec"] = {
        mode: {n: codec_seconds(n, wire) for n in sorted({*workers, *hosts})}
        for mode, wire in tables.WIRES.items()
    }
    rows = []
    for count in workers:
        for mode, seconds in exchange_seconds(count, costs, rate).items():
            row = {"kind": "prediction", "hosts": count, "mode": mode}
            rows.append(row | {"milliseconds": _COMPUTE.value + 1e3 * seconds})
    for count in hosts:
        measured = _measure_step(count)
        times = exchange_seconds(
            count, costs, rate, slowdown=max(1.0, count * _threads(count) / (os.cpu_count() or 1))
        )
        for mode, seconds in times.items():
            row = {"kind": "check", "hosts": count, "mode": mode}
            row["expected_milliseconds"] = 1e3 * (measured["no_exchange"] + seconds)
            rows.append(row | {"milliseconds": 1e3 * measured[mode]})
    return costs, rows


def main():
    """Predicts the steps of many workers and checks the model with few."""
    if _PROCESS.value:
        return _work()
    workers, hosts = sorted(map(int, _WORKERS.value)), sorted(map(int, _HOSTS.value))
    settings = {"compute_ms": _COMPUTE.value, "rate_mbit": _RATE.value}
    settings |= {"workers": workers, "hosts": hosts}
    rows = figures.Finished(_JSON.value, settings, "rows", command=COMMAND)
    if not rows:
        costs, measured = measure(workers, hosts)
        rows.add(*measured, costs=costs)
        small = ", ".join(
            f"{name} {1e3 * costs[name]:.2f} ms" for name in ("message", "collective", "beside")
        )
        print(f"{small}, byte {1e9 * costs['byte']:.2f} ns\n")
    print(f"{tables.predictions(rows)}\n\n{tables.checks(rows)}")
    if _IMAGES.value:
        picture.write(rows, _IMAGES.value)


if __name__ == "__main__":
    program.run(main)
