"""Bytes and time of one gradient reduction between hosts, for every wire.

Makes hosts on this machine that are joined by links of a chosen rate (`benchmarks/netns.sh`: Linux,
root, iproute2), starts one process on each and lets all wires take turns, round by round, in the
same processes. Bytes are what a host's network interface received, headers included.

    python -m benchmarks.wire --hosts=2,4,8 --rates=1gbit,100mbit --json=wire.json
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks import figures

_HOSTS = flags.DEFINE_list("hosts", ["2", "4", "8"], "Numbers of hosts to measure.")
_RATES = flags.DEFINE_list("rates", ["1gbit", "100mbit"], "Rates of the links, or 'none'.")
_ELEMENTS = flags.DEFINE_integer("elements", 4 * 2**20, "Elements of the gradient.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measured rounds; the median counts.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")
_WORKER = flags.DEFINE_string("worker", None, "Interface to watch. Set by the benchmark itself.")

MODES = ("float32", "float16", "allgather", "alltoall", "lanes", "both_ways", "auto")
NETNS = pathlib.Path(__file__).with_name("netns.sh")
PREFIX = "tgw"
SUBNET = "10.79.0"
PORT = 4711


def _netns(*arguments):
    environment = dict(os.environ, SUBNET=SUBNET)
    subprocess.run(["bash", str(NETNS), *map(str, arguments)], check=True, env=environment)


def _received(interface):
    path = pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_bytes")
    return int(path.read_text())


def _steps(strategy, num_elements):
    """A compiled function a mode, each reducing the same gradient over all hosts."""
    import tensorflow as tf

    from terngrad_tf.distribute import TernaryAllReduce

    gradient = tf.random.stateless_normal([num_elements], [strategy.host_index, 1])
    counter = tf.Variable(0)

    def make(mode):
        bits = 32 if mode.startswith("float") else 1
        op = TernaryAllReduce(grad_bits=bits, **({} if bits == 32 else {"wire": mode}))

        @tf.function
        def step():
            counter.assign_add(1)
            with tf.device(strategy.extended.worker_devices[0]):
                sent = tf.identity(tf.cast(gradient, mode) if bits == 32 else gradient)
            (total,) = op.reduce_gradients(
                strategy,
                [sent],
                op.local_scales([sent], ["gradient"]),
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
    """One host: measures all modes in turn and prints a JSON line."""
    import terngrad_tf

    strategy = terngrad_tf.TernGradStrategy()
    steps = _steps(strategy, _ELEMENTS.value)
    times = {mode: [] for mode in MODES}
    received = {mode: [] for mode in MODES}
    with strategy.scope():
        for step_number in range(_ROUNDS.value + 2):
            # Each mode starts a round in turn: what one leaves in the links' queues meets all.
            for mode in MODES[step_number % len(MODES) :] + MODES[: step_number % len(MODES)]:
                step = steps[mode][0]
                before, start = _received(interface), time.perf_counter()
                step().numpy()
                elapsed = time.perf_counter() - start
                # Everything that was sent for this step has arrived when all hosts pass.
                time.sleep(0.05)
                if step_number >= 2:
                    times[mode].append(elapsed)
                    received[mode].append(_received(interface) - before)
    chosen = {mode: op.traffic.wire for mode, (_, op) in steps.items()}
    print(json.dumps({"times": times, "received": received, "wire": chosen}), flush=True)


def _measure(num_hosts, rate):
    """Runs one cluster; returns a row a mode."""
    addresses = [f"{SUBNET}.{i + 1}:{PORT}" for i in range(num_hosts)]
    _netns("up", PREFIX, num_hosts, rate)
    processes = []
    try:
        for index in range(num_hosts):
            task = {"type": "worker", "index": index}
            environment = dict(
                os.environ,
                TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": task}),
                TF_CPP_MIN_LOG_LEVEL="2",
                SUBNET=SUBNET,
            )
            command = [
                *["bash", str(NETNS), "exec", PREFIX, str(index)],
                *[sys.executable, "-m", "benchmarks.wire", f"--worker={PREFIX}e{index}"],
                *[f"--elements={_ELEMENTS.value}", f"--rounds={_ROUNDS.value}"],
            ]
            errors = tempfile.TemporaryFile("w+")
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            processes.append((process, errors))
        results = []
        for process, errors in processes:
            output, _ = process.communicate(timeout=1200)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"A host failed:\n{errors.read()[-3000:]}")
            results.append(json.loads(output.strip().splitlines()[-1]))
    finally:
        for process, _ in processes:
            process.kill()
            process.wait()
        _netns("down", PREFIX, num_hosts)
    rows = []
    for mode in MODES:
        # A step has ended when the slowest host has.
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
            }
        )
    base = rows[0]
    for row in rows:
        row["fewer_bytes"] = base["received_bytes"] / row["received_bytes"]
        row["faster"] = base["milliseconds"] / row["milliseconds"]
    return rows


def main(argv):
    """Measures every combination of hosts and rates and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if _WORKER.value:
        return _work(_WORKER.value)
    if os.geteuid():
        print("This benchmark makes network namespaces and needs root.", file=sys.stderr)
        return 1
    table = []
    print("| hosts | link | mode | received MB | fewer bytes | ms | faster |")
    print("|---|---|---|---|---|---|---|")
    for num_hosts in map(int, _HOSTS.value):
        for rate in _RATES.value:
            for row in _measure(num_hosts, rate):
                mode = row["mode"]
                mode = f"auto ({row['wire']})" if mode == "auto" else mode
                cells = [num_hosts, rate, mode, f"{row['received_bytes'] / 1e6:.3f}"]
                cells += [f"{row['fewer_bytes']:.2f}", f"{row['milliseconds']:.1f}"]
                cells += [f"{row['faster']:.2f}"]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                table.append(row)
    if _JSON.value:
        figures.write_json(_JSON.value, {"elements": _ELEMENTS.value, "rows": table})
    return 0


if __name__ == "__main__":
    app.run(main)
