"""Step time and received bytes on several hosts: ternary and float gradients, TensorFlow, PyTorch.

Makes hosts on this machine that are joined by links of a chosen rate (`benchmarks/netns.sh`: Linux,
root, iproute2). On each, one process a framework waits; all modes of all frameworks take turns,
round by round. Bytes are what a host's network interface received, headers included.

    python -m benchmarks.cluster --torch_python=TORCH_VENV/bin/python --json=cluster.json

PyTorch lives in an environment of its own, so that the two frameworks' libraries cannot clash:
`python3 -m venv TORCH_VENV && TORCH_VENV/bin/pip install torch numpy`, of PyTorch's CPU build.
Without --torch_python its rows are left out.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks import cluster_models, figures

_HOSTS = flags.DEFINE_list("hosts", ["2", "4"], "Numbers of hosts to measure.")
_RATES = flags.DEFINE_list("rates", ["100mbit", "1gbit", "none"], "Rates of the links; none: any.")
_MODELS = flags.DEFINE_list("models", list(cluster_models.MODELS), "Workloads to measure.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Measured rounds; the median counts.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 3, "Steps a mode and round.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 64, "Examples a worker (digits).", lower_bound=1)
_THREADS = flags.DEFINE_integer(
    "threads", None, "Threads a worker computes with. Default: cores / hosts."
)
_TORCH = flags.DEFINE_string("torch_python", None, "Interpreter that has PyTorch.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")

ROOT = pathlib.Path(__file__).resolve().parents[1]
NETNS = pathlib.Path(__file__).with_name("netns.sh")
PREFIX = "tgb"
SUBNET = "10.80.0"
PORTS = {"terngrad": 4711, "tensorflow": 4712, "torch": 4713}
WARM_UP_STEPS = 3


def _netns(*arguments):
    environment = dict(os.environ, SUBNET=SUBNET)
    subprocess.run(["bash", str(NETNS), *map(str, arguments)], check=True, env=environment)


class _Host:
    """One framework's process on one host."""

    def __init__(self, framework, index, num_hosts, model):
        addresses = [f"{SUBNET}.{i + 1}:{PORTS[framework]}" for i in range(num_hosts)]
        interface = f"{PREFIX}e{index}"
        threads = _THREADS.value or max(1, (os.cpu_count() or 1) // num_hosts)
        common = [model, interface, str(threads), str(_BATCH.value)]
        if framework == "torch":
            where = [str(index), str(num_hosts), addresses[0]]
            command = [_TORCH.value, "-m", "benchmarks.cluster_torch", *where, *common]
        else:
            command = [sys.executable, "-m", "benchmarks.cluster_tensorflow", framework, *common]
        task = {"type": "worker", "index": index}
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", f"{PREFIX}{index}", *command],
            env=dict(
                os.environ,
                TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": task}),
                TF_CPP_MIN_LOG_LEVEL="2",
                PYTHONPATH=str(ROOT),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self):
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._errors.seek(0)
        raise RuntimeError(f"A host failed:\n{self._errors.read()[-3000:]}")

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._errors.close()


def _measure(num_hosts, rate, model):
    """Runs all frameworks on one cluster; returns a row a mode."""
    frameworks = ["terngrad", "tensorflow", *(["torch"] if _TORCH.value else [])]
    results = {}
    with contextlib.ExitStack() as stack:
        _netns("up", PREFIX, num_hosts, rate)
        stack.callback(_netns, "down", PREFIX, num_hosts)
        hosts_of = {}
        for framework in frameworks:
            hosts = [_Host(framework, i, num_hosts, model) for i in range(num_hosts)]
            for host in hosts:
                stack.callback(host.kill)
            modes = [host.answer()["ready"] for host in hosts][0]
            hosts_of |= dict.fromkeys(modes, hosts)

        def run(mode, num_steps):
            for host in hosts_of[mode]:
                host.ask(f"{mode} {num_steps}")
            answers = [host.answer() for host in hosts_of[mode]]
            # A step has ended when the slowest host has.
            seconds = max(answer["seconds"] for answer in answers)
            return seconds, statistics.mean(answer["received"] for answer in answers)

        modes = list(hosts_of)
        for mode in modes:
            run(mode, WARM_UP_STEPS)
        for round_number in range(_ROUNDS.value):
            # Each mode starts a round in turn: what one leaves in the links' queues meets all.
            first = round_number % len(modes)
            for mode in modes[first:] + modes[:first]:
                results.setdefault(mode, []).append(run(mode, _STEPS.value))
    return [
        {
            "model": model,
            "hosts": num_hosts,
            "rate": rate,
            "mode": mode,
            "milliseconds": 1e3 * statistics.median(seconds for seconds, _ in values),
            "received_bytes": statistics.median(received for _, received in values),
        }
        for mode, values in results.items()
    ]


def main(argv):
    """Measures every combination and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if os.geteuid():
        print("This benchmark makes network namespaces and needs root.", file=sys.stderr)
        return 1
    table = []
    print("| model | hosts | link | gradients | ms a step | received MB a step |")
    print("|---|---|---|---|---|---|")
    for model in _MODELS.value:
        for num_hosts in map(int, _HOSTS.value):
            for rate in _RATES.value:
                for row in _measure(num_hosts, rate, model):
                    cells = [model, num_hosts, rate, row["mode"], f"{row['milliseconds']:.1f}"]
                    cells.append(f"{row['received_bytes'] / 1e6:.3f}")
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)
                    table.append(row)
    if _JSON.value:
        figures.write_json(_JSON.value, {"rows": table})
    return 0


if __name__ == "__main__":
    app.run(main)
