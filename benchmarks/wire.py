"""Measures bytes and time of one gradient reduction between hosts, for every wire.

Creates hosts on this machine, joined by links of a chosen rate (`lib/netns.sh`: Linux, root,
iproute2), starts one process per host, and lets all wires take turns, round by round, in the same
processes. Bytes are those that a host's network interface received, headers included; "counted" are
those of `op.traffic`. "rotated" is the default, the other modes have `rotate=False`.

    python -m benchmarks.wire --hosts=2,4,8 --rates=1gbit,100mbit --json=wire.json
"""

import json
import math
import statistics
import time

from absl import flags

from benchmarks.lib import cluster_hosts, figures, markdown, measuring, program, step_server

_HOSTS = flags.DEFINE_list("hosts", ["2", "4", "8"], "Numbers of hosts to measure.")
_RATES = flags.DEFINE_list("rates", ["1gbit", "100mbit"], "Rates of the links, or 'none'.")
_ELEMENTS = flags.DEFINE_integer("elements", 4 * 2**20, "Elements of the gradient.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measured rounds; the median counts.", lower_bound=1)
_NONZERO = flags.DEFINE_float(
    "nonzero", None, "Does not clip, and makes this share of the codes nonzero.", 1e-6, 0.7
)
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")
_WORKER = flags.DEFINE_string("worker", None, "Interface to watch. Set by the benchmark itself.")

MODES = (
    "float32",
    "float16",
    "allgather",
    "alltoall",
    "allreduce",
    "sparse",
    "bidirectional",
    "sparse_bidirectional",
    "auto",
    "rotated",
    "rotated bidirectional",
)
PREFIX = "tgw"
SUBNET = "10.79.0"
PORT = 4711
# Rounds before those that count.
WARM_UP = 2


def _steps(strategy, num_elements):
    """Returns a compiled function per mode; each reduces the same gradient over all hosts."""
    import tensorflow as tf

    from terngrad_tf.distribute import Quantization, TernaryAllReduce

    gradient = tf.random.stateless_normal([num_elements], [strategy.process_index, 1])
    clip_factor = 2.5
    if _NONZERO.value:
        # The mean of |g| is sqrt(2 / pi); the scale is the largest element.
        clip_factor, largest = 0, math.sqrt(2 / math.pi) / _NONZERO.value
        gradient = tf.concat([gradient[1:], [largest]], 0)
    counter = tf.Variable(0)

    def make(mode):
        bits = 32 if mode.startswith("float") else 1
        rotated = mode.startswith("rotated")
        wire = "auto" if bits == 32 else mode.removeprefix("rotated").strip() or "auto"
        how = {} if rotated else {"rotate": False, "clip_factor": clip_factor}
        op = TernaryAllReduce(quantization=Quantization(grad_bits=bits, **how), wire=wire)

        @tf.function
        def step():
            counter.assign_add(1)
            with tf.device(strategy.extended.worker_devices[0]):
                sent = tf.identity(tf.cast(gradient, mode) if bits == 32 else gradient)
            (total,), _ = op.reduce_gradients(
                strategy,
                [sent],
                op.local_scales([sent], ["gradient"], strategy.num_replicas_in_sync),
                ["gradient"],
                [0],
                counter.read_value(),
            )
            total = strategy.experimental_local_results(total)[0]
            return tf.reduce_sum(tf.cast(total[:8], tf.float32))

        return step, op

    with strategy.scope():
        return {mode: make(mode) for mode in MODES}


def _work(interface):
    """Measures all modes in turn on one host and prints a JSON line."""
    import terngrad_tf

    strategy = terngrad_tf.TernGradStrategy()
    steps = _steps(strategy, _ELEMENTS.value)
    times = {mode: [] for mode in MODES}
    received = {mode: [] for mode in MODES}
    with strategy.scope():
        for mode in measuring.in_turn(dict.fromkeys(MODES, WARM_UP + _ROUNDS.value)):
            step = steps[mode][0]
            before, start = step_server.received_bytes(interface), time.perf_counter()
            step().numpy()
            times[mode].append(time.perf_counter() - start)
            # When all hosts pass, all data has arrived.
            time.sleep(0.05)
            received[mode].append(step_server.received_bytes(interface) - before)
    chosen = {mode: op.traffic.wire for mode, (_, op) in steps.items()}
    counted = {mode: op.traffic.received_bytes for mode, (_, op) in steps.items()}
    times, received = ({m: v[WARM_UP:] for m, v in of.items()} for of in (times, received))
    found = {"times": times, "received": received, "wire": chosen, "counted": counted}
    print(json.dumps(found), flush=True)


def _measure(num_hosts, rate):
    """Runs one cluster; returns a row per mode."""
    network = cluster_hosts.Network(PREFIX, SUBNET, num_hosts)
    options = {"elements": _ELEMENTS.value, "rounds": _ROUNDS.value}
    if _NONZERO.value:
        options["nonzero"] = _NONZERO.value
    commands = [
        cluster_hosts.command("benchmarks.wire", **options, worker=network.interface(index))
        for index in range(num_hosts)
    ]
    with network.up(rate), network.processes(PORT, commands) as hosts:
        results = [host.answer() for host in hosts]
    rows = []
    for mode in MODES:
        # A step ends when the slowest host ends.
        slowest = [max(r["times"][mode][i] for r in results) for i in range(_ROUNDS.value)]
        rows.append(
            {
                "hosts": num_hosts,
                "rate": rate,
                "mode": mode,
                "wire": results[0]["wire"][mode],
                "milliseconds": 1e3 * statistics.median(slowest),
                "received_bytes": statistics.mean(
                    statistics.median(r["received"][mode]) for r in results
                ),
                "counted_bytes": results[0]["counted"][mode],
            }
        )
    base = rows[0]
    for row in rows:
        row["fewer_bytes"] = base["received_bytes"] / row["received_bytes"]
        row["faster"] = base["milliseconds"] / row["milliseconds"]
    return rows


def main():
    """Measures every combination of hosts and rates and prints the table."""
    if _WORKER.value:
        return _work(_WORKER.value)
    table = []
    titles = "hosts | link | mode | received MB | counted MB | fewer bytes | ms | faster"
    print(markdown.head(titles))
    for num_hosts in map(int, _HOSTS.value):
        for rate in _RATES.value:
            for row in _measure(num_hosts, rate):
                mode = row["mode"]
                mode = f"{mode} ({row['wire']})" if mode in ("auto", "rotated") else mode
                cells = [num_hosts, rate, mode, f"{row['received_bytes'] / 1e6:.3f}"]
                cells += [f"{row['counted_bytes'] / 1e6:.3f}"]
                cells += [f"{row['fewer_bytes']:.2f}", f"{row['milliseconds']:.1f}"]
                cells += [f"{row['faster']:.2f}"]
                print(markdown.row(cells), flush=True)
                table.append(row)
    if _JSON.value:
        figures.write_json(_JSON.value, {"elements": _ELEMENTS.value, "rows": table})


if __name__ == "__main__":
    program.run(main)
