"""Checks if machines can train together, and measures their links: `terngrad check`."""

import concurrent.futures
import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from terngrad_tf.launcher.hosts import Host
from terngrad_tf.launcher.nodes import LostError, Program, clock_remark, ssh_command

_ANSWER_SECONDS = 20.0
_SEND_SECONDS = 0.2
# Share of the median below which a link is slow.
_SLOW_SHARE = 0.5
_MUST_BE_ALIKE = ("terngrad_tf", "tensorflow", "keras")


@dataclasses.dataclass(frozen=True)
class Link:
    """One direction of the connection between two machines.

    Attributes:
        source: machine that connects and sends.
        target: other machine.
        round_trip: seconds; None if `failure`.
        failure: reason why the link cannot be used, or None.
    """

    source: str
    target: str
    round_trip: float | None = None
    bits_per_second: float | None = None
    failure: str | None = None


@dataclasses.dataclass
class Findings:
    """Results of `check`.

    Attributes:
        machines: {name: result of `probe.describe`} of answering machines.
        faults: lines that name machines with which training would fail.
        remarks: lines about possibly intended differences.
    """

    machines: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    links: list[Link] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)


class _Machine:
    """A process of `probe.main` on a machine."""

    def __init__(self, host, python, options, environment):
        self.host = host
        if host.is_local():
            code = "import sys; from terngrad_tf.launcher import probe; sys.exit(probe.main())"
            command = [sys.executable, "-c", code]
        else:
            command = ssh_command(host, options, python, environment, "probe")
        self._program = self._lost = None
        try:
            self._program = Program(str(host), command, python)
        except LostError as error:
            self._lost = error

    def ask(self, question):
        """Returns the answer; raises `LostError`, from then on always."""
        if self._lost is None:
            try:
                self._program.send(question)
                return self._program.receive(_ANSWER_SECONDS)
            except TimeoutError:
                self._lost = LostError(f"{self.host}: no answer within {_ANSWER_SECONDS:.0f} s")
            except LostError as error:
                self._lost = error
        raise self._lost

    def close(self):
        if self._program is not None:
            self._program.close()


def check(
    hosts: Sequence[Host],
    port: int,
    python: str,
    options: Sequence[str],
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> Findings:
    """Describes machines and measures all links between them, in both directions.

    Args:
        port: TCP port on which each machine listens.
        python, options, environment: see `machines.Remote`.
        report: function of a line of progress.
    """
    found = Findings()
    report(f"asking {len(hosts)} machines")
    machines = [_Machine(host, python, options, environment) for host in hosts]
    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        try:
            there = _of_all(pool, machines, _describe, found.faults)
            found.machines = {str(machine.host): told for machine, told in there.items()}
            listening = _of_all(pool, there, lambda one: _listen(one, port), found.faults)
            if len(listening) > 1:
                report("measuring links")
            for pairs in _rounds(listening):
                found.links += pool.map(lambda pair: _measure(pair, port), pairs)
        finally:
            # Ends the waits of the pool's threads, too, for example after Ctrl-C.
            for machine in machines:
                machine.close()
    _compare(found)
    return found


def _describe(machine):
    """Returns `probe.describe` of a machine, with the clock's lead as `skew`."""
    # The first answer also waits for ssh and Python.
    machine.ask({"tell": True})
    start = time.time()
    told = machine.ask({"tell": True})["told"]
    return told | {"skew": told["time"] - (start + time.time()) / 2}


def _listen(machine, port):
    answer = machine.ask({"listen": [port]})
    if "failed" in answer:
        raise LostError(
            f"{machine.host} cannot listen on port {port}: {answer['failed']}; end the program that"
            " uses it, or take another --port"
        )


def _of_all(pool, machines, function, faults):
    """Calls a function of each machine at once; returns {machine: result} without lost ones."""
    found = {}
    for machine, future in [(one, pool.submit(function, one)) for one in machines]:
        try:
            found[machine] = future.result()
        except LostError as error:
            faults.append(str(error))
    return found


def _rounds(machines):
    """Yields lists of disjoint pairs, until all machines have met, in both directions."""
    left = list(itertools.permutations(machines, 2))
    while left:
        used, pairs = set(), []
        for pair in list(left):
            if not used & set(pair):
                used |= set(pair)
                pairs.append(pair)
                left.remove(pair)
        yield pairs


def _measure(pair, port):
    source, target = pair
    names = str(source.host), str(target.host)
    try:
        answer = source.ask({"reach": [target.host.name, port, _SEND_SECONDS]})
    except LostError as error:
        return Link(*names, failure=str(error))
    if "failed" in answer:
        return Link(*names, failure=answer["failed"])
    return Link(*names, *answer["reached"])


def _compare(found):
    """Adds faults and remarks on links and machines."""
    for link in found.links:
        if link.failure is not None:
            hint = "; does a firewall drop it?" if link.failure == "timed out" else ""
            found.faults.append(
                f"{link.target} cannot be reached from {link.source}: {link.failure}{hint}"
            )
    _compare_machines(found)
    _compare_rates(found)


def _compare_machines(found):
    versions = {name: _versions(told) for name, told in found.machines.items()}
    first = next(iter(versions), None)
    for name, own in versions.items():
        for what, version in own.items():
            if version != versions[first][what]:
                lines = found.faults if what in _MUST_BE_ALIKE else found.remarks
                lines.append(f"{name} has {what} {version}, {first} has {versions[first][what]}")
    for name, told in found.machines.items():
        if told["tensorflow"] is None:
            found.faults.append(f"{name} has no TensorFlow: pip install terngrad_tf there")
        if remark := clock_remark(name, told["skew"]):
            found.remarks.append(remark)
    if len({told["processor"] for told in found.machines.values()}) > 1:
        found.remarks.append("processors differ; every step waits for the slowest machine")


def _versions(told):
    """Returns the versions to compare; that of Python without its last number."""
    versions = {what: told[what] for what in (*_MUST_BE_ALIKE, "python", "numpy")}
    return versions | {"python": told["python"].rpartition(".")[0]}


def _compare_rates(found):
    measured = [link for link in found.links if link.failure is None]
    if not measured:
        return
    usual = statistics.median(link.bits_per_second for link in measured)
    for link in measured:
        if link.bits_per_second < _SLOW_SHARE * usual:
            found.remarks.append(
                f"{link.source} sends to {link.target} at {_mbit(link.bits_per_second)}"
                f" Mbit/s, half of the {_mbit(usual)} between others or less"
            )


def _mbit(bits_per_second):
    return f"{round(1e-6 * bits_per_second, mbit_digits(bits_per_second)):,g}"


def mbit_digits(bits_per_second: float) -> int:
    """Returns how many digits a rate in Mbit/s needs after the point."""
    return 1 if bits_per_second >= 1e6 else 3
