"""`terngrad run`, from its options to processes and an exit status."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from terngrad_tf.bin.command import remote_options, run_options
from terngrad_tf.common import messages, tokens
from terngrad_tf.common.addresses import (
    first_twice,
    is_address,
    not_for_others,
    parse_addresses,
)
from terngrad_tf.common.arguments import shown
from terngrad_tf.common.last_line import STATUS_INTERRUPTED
from terngrad_tf.distribute.cluster import rank_table
from terngrad_tf.launcher import background, batch_systems, machines, remote_nodes
from terngrad_tf.launcher.coordinator import STATUS_NODE, STATUS_PEER, Coordinator, Plan
from terngrad_tf.launcher.hosts import Host, consecutive_ports, parse_hosts
from terngrad_tf.launcher.nodes import LocalNode, LostError
from terngrad_tf.launcher.output import logs

PROGRAM = run_options.PROGRAM
parser = run_options.parser
_PASSED = ("TF_", "XLA_", "KERAS_", "TERNGRAD_TF_", "PYTHONPATH")
_GPUS = "CUDA_VISIBLE_DEVICES"


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns the exit status."""
    values = parser().parse_args(arguments)
    if values.background is None or values.dry_run:
        return _report_end(_result(values, lambda: None))[0]
    try:
        result = background.start(
            values.background, lambda started: _report_end(_result(values, started))
        )
    except background.BackgroundError as error:
        result = STATUS_NODE, f"error: {error}"
    except KeyboardInterrupt:
        result = STATUS_INTERRUPTED, "interrupted"
    return _report_end(result)[0]


def _result(values, started):
    """Returns the exit status and the reason for it, or None."""
    try:
        return _run(values, started)
    except (ValueError, LostError) as error:
        return STATUS_NODE, f"error: {error}"
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return STATUS_NODE, f"error: {where}{error.strerror}"
    except KeyboardInterrupt:
        return STATUS_INTERRUPTED, "interrupted"


def _report_end(result):
    if result[1] is not None:
        _report(messages.with_code(result[1]))
    return result


def _run(values, started: Callable[[], None]):
    place = _place(values)
    run_options.check(values, place is not None)
    devices = rank_table.read_rank_table(values.rank_table) if values.rank_table else []
    nodes = _nodes(values, devices) if place is None else []
    each = _each(values, devices, sum(node.slots for node in nodes))
    token = _token(values)
    plan = _plan(values, each, token)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(logs.Output(None if values.dry_run else values.log_dir))

        def report(line):
            output.report(_told(line))

        if place is not None and place.node:
            ports = _ports_of(place, values.np or 1)
            last = remote_nodes.join(
                *(place.chief, place.node, place.name, ports),
                *(token, plan.start_timeout, output.write, report, started),
            )
            return last.get("over", (STATUS_PEER, "lost machine 0: the connection ended"))
        if place is not None:
            nodes = _nodes_that_join(stack, place, values.np or 1, token, plan.start_timeout)
        coordinator = Coordinator(plan, nodes, output.write, report, started)
        if values.dry_run:
            print(*coordinator.describe(), sep="\n", flush=True)
            return 0, None
        with _passing_signals(coordinator):
            return coordinator.run()


def _nodes_that_join(stack, place, num_processes, token, timeout):
    """Returns the nodes of a run that each machine starts; this machine is the chief's."""
    listener = stack.enter_context(remote_nodes.listen(place.chief[1], place.num_nodes, token))
    host = Host(place.chief[0].strip("[]"), num_processes)
    return [
        LocalNode(host, _ports_of(place, num_processes)),
        *(remote_nodes.SocketNode(node, listener, timeout) for node in range(1, place.num_nodes)),
    ]


@contextlib.contextmanager
def _passing_signals(coordinator):
    """Passes SIGINT and SIGTERM on to the run's processes."""
    stopping = signal.SIGINT, signal.SIGTERM
    for number in stopping:
        signal.signal(number, lambda received, _: coordinator.tell(received))
    try:
        yield
    finally:
        # Its processes have ended; the last lines may wait for a stopped terminal.
        for number in stopping:
            signal.signal(number, signal.SIG_DFL)


def _place(values):
    """Returns this machine's place if each machine starts the command, else None."""
    own = (values.nodes, values.node, values.chief)
    lists = [option for option, value in run_options.places(values) if value]
    if len(lists) > 1:
        raise ValueError(f"`{lists[1]}` must not be given together with {lists[0]}")
    if lists and own != (None, None, None):
        raise ValueError(f"`{lists[0]}` must not be given with --nodes, --node or --chief")
    if lists or own == (None, None, None) and values.np is not None:
        return None
    if own == (None, None, None):
        return batch_systems.slurm_place(os.environ)
    return _place_by_hand(values)


def _place_by_hand(values):
    """Returns the place that --nodes, --node and --chief give."""
    if values.nodes is not None and values.nodes < 1:
        raise ValueError(f"`--nodes` must be a positive integer. Received: --nodes={values.nodes}")
    node = values.node
    if node is None:
        node = batch_systems.kubernetes_node(os.environ, socket.gethostname())
    if values.nodes is None or node is None or values.chief is None:
        raise ValueError("`--nodes`, `--node` and `--chief` must be given together")
    if not is_address(values.chief):
        raise ValueError(f"`--chief` must be host:port. Received: {shown(values.chief)}")
    if not 0 <= node < values.nodes:
        raise ValueError(f"`--node` must be 0 to {values.nodes - 1}. Received: --node={node}")
    host, _, port = values.chief.rpartition(":")
    name = values.name.strip("[]")
    if name and not is_address(Host(name).address(int(port))):
        raise ValueError(f"`--name` must be a host name or an address. Received: {shown(name)}")
    return batch_systems.Place(values.nodes, node, (host.strip("[]"), int(port)), name)


def _plan(values, each, token):
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working folder does not exist any more") from None
    command, script = _command(values)
    return Plan(
        command=command,
        folder=folder,
        script=script,
        environment=_environment(values, token),
        each=each,
        num_servers=len(parse_addresses("--ps-hosts", values.ps_hosts)),
        max_restarts=values.max_restarts,
        min_workers=values.min_workers,
        grace_seconds=values.grace,
        start_timeout=values.start_timeout,
    )


def _command(values):
    """Returns a worker's command, and its script or None."""
    given = values.command[1:] if values.command[:1] == ["--"] else values.command
    if values.module is not None:
        if not values.module:
            raise ValueError("`-m` must be followed by a module")
        return [values.python, "-m", *values.module], None
    if not given:
        raise ValueError("a script, -m module or program must be given; see terngrad run --help")
    if given[0].endswith(".py"):
        return [values.python, *given], given[0]
    return list(given), None


def _environment(values, token):
    """Returns the variables of all processes."""
    passed = {k: v for k, v in os.environ.items() if k.startswith(_PASSED)}
    for entry in values.env:
        name, equals, value = entry.partition("=")
        if not name or not equals and name not in os.environ:
            raise ValueError(f"`--env` must be NAME=VALUE, or a variable set here: {shown(entry)}")
        passed[name] = value if equals else os.environ[name]
    # Lines appear when written, and apart from TensorFlow's.
    passed.setdefault("PYTHONUNBUFFERED", "1")
    passed.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if values.token_file is not None:
        passed[tokens.VARIABLE] = token
    return passed


def _each(values, devices, num_processes):
    """Returns the variables of each worker."""
    servers = parse_addresses("--ps-hosts", values.ps_hosts)
    count = len(devices) or num_processes - len(servers)
    found: dict[str, list[str]] = {}
    for entry in values.each:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise ValueError(f"`--each` must be NAME=VALUE. Received: {shown(entry)}")
        found.setdefault(name, []).append(value)
    for name, given in found.items():
        if len(given) != count:
            raise ValueError(
                f"`--each {name}=...` must be given once for each of the {count} workers."
                f" Received: {len(given)} times"
            )
    set_for_all = {*os.environ, *(entry.partition("=")[0] for entry in values.env)}
    if devices and _GPUS not in set_for_all:
        found.setdefault(_GPUS, [str(device.device_id) for device in devices])
    return [{name: given[i] for name, given in found.items()} for i in range(count)]


def _token(values):
    if values.token_file is not None:
        return tokens.token_from_file(values.token_file)
    return tokens.token_from_environment()


def _ports_of(place, count):
    """Returns the ports of a machine's processes; machine 0 listens on the chief's."""
    return consecutive_ports("--chief", place.chief[1], count, 1 + place.offset)


def _nodes(values, devices):
    if devices:
        ranks, reached = rank_table.on_this_machine(devices, values.server_id)
        port = values.port or remote_options.PORT
        return machines.local_part(rank_table.addresses(reached, port), ranks)
    options = remote_options.ssh_options(values)
    remote = machines.Remote(
        values.python,
        options,
        remote_options.environment(),
        (lambda host: _sync(host, options)) if values.sync and not values.dry_run else None,
    )
    if values.worker_hosts:
        workers = parse_addresses("--worker-hosts", values.worker_hosts)
        addresses = workers + parse_addresses("--ps-hosts", values.ps_hosts)
        if twice := first_twice(addresses):
            raise ValueError(f"`--ps-hosts` must name no worker. Received: {twice}")
        if wrong := not_for_others(addresses):
            raise ValueError(f"`--ps-hosts` must hold addresses for all machines: {wrong}")
        return machines.from_addresses(addresses, remote)
    if values.hosts is None:
        return machines.on_this_machine(values.np or 1)
    hosts = parse_hosts(values.hosts)
    if values.np is not None:
        hosts = machines.first_slots(hosts, values.np)
    return machines.from_hosts(hosts, values.port or remote_options.PORT, remote)


def _sync(host, options):
    _report(f"copying {os.getcwd()} to {host}")
    machines.copy_folder(host, options)


def _report(line):
    logs.show(sys.stderr, _told(line))


def _told(line):
    return f"{PROGRAM}: {line}"
