"""Compares the steps of `DiLoCo(sync_every="auto")` with fixed numbers of steps to an exchange.

Hosts of this machine, joined by links of a chosen rate (`lib/netns.sh`: Linux, root, iproute2),
train the LeNet of `benchmarks.time_to_accuracy` (1.7 M weights) by `model.fit`:

    python -m benchmarks.local_steps.periods

In each round all modes take steps in turn. The median of the rounds counts.
"""

import statistics
import sys

from absl import app, flags

from benchmarks.lib import cluster_hosts, markdown, program
from terngrad_tf.distribute.local_sgd.measured_steps import PERIODS

PREFIX, SUBNET, PORT = "tgk", "10.89.0", 4731
AUTO = "auto"
MODES = (AUTO, *map(str, PERIODS))

_HOSTS = flags.DEFINE_integer("hosts", 2, "Hosts.", lower_bound=2)
_LINKS = flags.DEFINE_list("links", ["1gbit", "100mbit", "10mbit"], "Rates of the links.")
_MODES = flags.DEFINE_list("modes", list(MODES), "Numbers of steps to an exchange.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 64, "Steps of a round, a multiple of 32.", lower_bound=32)


def measure(link):
    """Returns what auto took and `{mode: milliseconds of a step}`."""
    network = cluster_hosts.Network(PREFIX, SUBNET, _HOSTS.value)
    arguments = [str(_ROUNDS.value), str(_STEPS.value), *_MODES.value]
    command = [sys.executable, "-m", "benchmarks.local_steps.periods_worker", *arguments]
    with network.up(link), network.processes(PORT, _HOSTS.value * [command]) as hosts:
        answers = [host.answer() for host in hosts]
    slowest = {
        mode: [max(seconds) for seconds in zip(*(a["seconds"][mode] for a in answers), strict=True)]
        for mode in _MODES.value
    }
    milliseconds = {mode: 1e3 * statistics.median(found) for mode, found in slowest.items()}
    return answers[0]["taken"], milliseconds


def row(link, taken, milliseconds):
    """Returns the cells of a line of the table."""
    cells = [link, taken, *(f"{milliseconds[mode]:.1f}" for mode in _MODES.value)]
    fixed = [milliseconds[mode] for mode in _MODES.value if mode != AUTO]
    ratio = f"{milliseconds[AUTO] / min(fixed):.2f}" if fixed and AUTO in milliseconds else ""
    return [*cells, ratio]


def main():
    """Measures and prints the table."""
    if _STEPS.value % max(PERIODS):
        raise app.UsageError(f"--steps must be a multiple of 32. Received: {_STEPS.value}")
    unknown = [mode for mode in _MODES.value if mode not in MODES]
    if unknown:
        raise app.UsageError(f"--modes must be of {', '.join(MODES)}. Received: {unknown}")
    titles = " | ".join(f"{mode}: ms" for mode in _MODES.value)
    print(markdown.head(f"link | auto takes | {titles} | auto / quickest"), flush=True)
    for link in _LINKS.value:
        print(markdown.row(row(link, *measure(link))), flush=True)


if __name__ == "__main__":
    program.run(main)
