"""Arguments and output of `terngrad check`."""

import argparse
import os
import re
import sys
from collections.abc import Sequence

from slim_data.common.captured_stderr import capture_stderr
from terngrad_tf.bin.command import remote_options
from terngrad_tf.bin.command.parsing import fail, make_parser
from terngrad_tf.common.arguments import shown
from terngrad_tf.launcher.check import check, mbit_digits
from terngrad_tf.launcher.hosts import parse_hosts

PROGRAM = "terngrad check"
STATUS_FAULT = 1
_DESCRIPTION = """\
Checks whether machines can train together: their versions, processors and clocks, the ports in
both directions, and rate and round trip of the links between all pairs. --weights adds the expected
time of an exchange for each mode. One line names each fault and the machine at fault.

  terngrad check -H host1,host2 --weights 25M
"""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    epilog = "The exit status is 0, 1 if a fault was found, 2 if an option is wrong."
    result = make_parser(PROGRAM, _DESCRIPTION, epilog=epilog)
    result.add_argument(
        *("-H", "--hosts"),
        required=True,
        metavar="[USER@]HOST,...",
        help="Machines to check.",
    )
    result.add_argument("--weights", metavar="N", help="Weights of the model, such as 25M.")
    result.add_argument(
        "--port", type=int, default=remote_options.PORT, help="Port. Default: %(default)s."
    )
    remote_options.add_options(result)
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns the exit status."""
    values = parser().parse_args(arguments)
    try:
        hosts = parse_hosts(values.hosts)
        weights = None if values.weights is None else _number(values.weights)
        options = remote_options.ssh_options(values)
        if not 0 < values.port < 2**16:
            raise ValueError(f"`--port` must be 1 to 65535. Received: --port={values.port}")
    except ValueError as error:
        return fail(PROGRAM, error)
    environment = remote_options.environment()
    found = check(hosts, values.port, values.python, options, environment, _report)
    for line in _table(found):
        print(line)
    if weights is not None and (links := [link for link in found.links if link.failure is None]):
        for line in _steps(links, len(found.machines), weights):
            print(line)
    for line in found.remarks:
        print(f"note: {line}")
    for line in found.faults:
        print(f"fault: {line}")
    count = len(found.faults)
    print(f"{count or 'no'} fault{'s' if count > 1 else ''} found", flush=True)
    return STATUS_FAULT if found.faults else 0


def _number(text):
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMG]?)", text)
    number = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 0 < number < 10**12:
        raise ValueError(f"`--weights` must be a number such as 25M. Received: {shown(text)}")
    return number


def _table(found):
    width = max((len(name) for name in found.machines), default=0)
    for name, told in found.machines.items():
        versions = ", ".join(
            f"{what} {told[what]}" for what in ("terngrad_tf", "tensorflow", "keras", "python")
        )
        yield f"{name:{width}}  {versions}; {told['cores']} cores, {told['processor']}"
    for link in found.links:
        if link.failure is None:
            yield (
                f"{link.source:{width}} -> {link.target:{width}}"
                f"  {1e-6 * link.bits_per_second:8.{mbit_digits(link.bits_per_second)}f} Mbit/s"
                f"  {1e3 * link.round_trip:6.2f} ms round trip"
            )


def _steps(links, num_machines, weights):
    """Yields lines on the expected time of an exchange over the slowest link."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    with capture_stderr():  # loads TensorFlow
        from terngrad_tf.distribute.exchange.plan import Job
        from terngrad_tf.distribute.exchange.wires import NONZERO_SHARE
        from terngrad_tf.distribute.wire_selection import exchange_model
        from terngrad_tf.distribute.wire_selection.links import Link

    slowest = min(link.bits_per_second for link in links)
    longest = max(link.round_trip for link in links)
    job = Job(num_machines, 1, ((weights,),), (), rotated=True)
    model = exchange_model.ExchangeModel(job, Link(8 / slowest, longest), NONZERO_SHARE)
    unit = exchange_model.seconds_of_doubling()
    yield f"expected exchange of {weights:,} gradients among {num_machines} machines:"
    seconds = {mode: model.seconds(mode, unit) for mode in exchange_model.MODES}
    for mode in sorted(seconds, key=seconds.__getitem__):
        yield f"  {exchange_model.option_of(mode):30} {1e3 * seconds[mode]:10.1f} ms"
    quickest = min(seconds.values())
    yield f"  {'DiLoCo, an exchange in 32 steps':30} {1e3 * quickest / 32:9.1f} ms a step"


def _report(line):
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)
