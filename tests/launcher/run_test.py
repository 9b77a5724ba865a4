"""`terngrad run` on one machine and on several, with real processes."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from terngrad_tf.bin.command import run
from terngrad_tf.launcher import batch_systems
from terngrad_tf.launcher.hosts import parse_hosts
from terngrad_tf.launcher.output import remarks
from tests.launcher import hosts

ROOT = hosts.ROOT
SCRIPT = str(pathlib.Path(__file__).with_name("train.py"))
TOKEN = "a secret of many letters"


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "terngrad_tf", "run", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process, timeout=120):
    """Returns the lines of standard output and of standard error, and the status."""
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return output.splitlines(), errors.splitlines(), process.returncode


def read_until(process, text, count):
    """Reads until `count` lines end with `text`."""
    for line in process.stdout:
        count -= line.rstrip().endswith(text)
        if not count:
            break


def wait_for(process, text, count):
    """Reads until `count` lines end with `text`; a thread reads the rest."""
    read_until(process, text, count)
    threading.Thread(target=process.stdout.read, daemon=True).start()


class OneMachineTest(tf.test.TestCase):
    def test_a_signal_ends_a_command_whose_processes_have_ended(self):
        # The last line may wait for a stopped terminal.
        for number in (signal.SIGINT, signal.SIGTERM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.assertEqual(run.run(["-np", "1", "true"]), 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(signal.getsignal(number), signal.SIG_DFL)

    def test_lines_have_the_number_of_their_process_and_logs_hold_them(self):
        logs = self.get_temp_dir()
        lines, errors, status = result(start("-np", "2", "--log-dir", logs, SCRIPT, "end", "-v"))
        self.assertEqual(status, 0, errors)
        self.assertCountEqual(lines, [f"[{i}] worker {i} of 2 end -v" for i in (0, 1)])
        self.assertCountEqual(errors, [f"[{i}] problem {i}" for i in (0, 1)])
        log = pathlib.Path(logs, "1.log").read_text(encoding="utf-8").splitlines()
        self.assertCountEqual(log, ["worker 1 of 2 end -v", "problem 1"])

    def test_letters_that_the_terminal_lacks_are_escaped(self):
        command = ("-np", "1", "printf", r"caf\303\251\nbar\n")
        lines, errors, status = result(start(*command, PYTHONIOENCODING="ascii"))
        self.assertEqual((lines, status), ([r"[0] caf\xe9", "[0] bar"], 0), errors)

    def test_full_disk_for_logs_is_reported_and_ends_nothing(self):
        folder = pathlib.Path(self.get_temp_dir(), "full")
        folder.mkdir()
        for rank in (0, 1):
            (folder / f"{rank}.log").symlink_to("/dev/full")
        lines, errors, status = result(start("-np", "2", "--log-dir", str(folder), SCRIPT, "end"))
        self.assertEqual(status, 0, errors)
        self.assertLen(lines, 2)
        self.assertCountEqual(
            [line for line in errors if line.startswith("terngrad run")],
            [
                f"terngrad run: {folder}/{rank}.log lacks lines: No space left on device"
                for rank in (0, 1)
            ],
        )

    def test_failure_ends_all_with_its_status_and_its_last_line(self):
        _, errors, status = result(start("-np", "2", SCRIPT, "fail"))
        self.assertEqual(status, 1)
        line = "worker 1 on this machine ended with status 1: ValueError: bad luck"
        self.assertEqual(errors[-1], f"terngrad run: {line}")

    def test_process_that_reports_a_peers_failure_is_not_its_cause(self):
        _, errors, status = result(start("-np", "2", SCRIPT, "told"))
        self.assertEqual(status, 1)
        self.assertEndsWith(
            errors[-1], "worker 0 on this machine ended with status 1: disk is full"
        )

    @pytest.mark.slow
    def test_killed_process_makes_all_start_again(self):
        mark = os.path.join(self.get_temp_dir(), "killed")
        command = ("-np", "2", "--max-restarts", "1", SCRIPT, "kill_once", mark)
        lines, errors, status = result(start(*command))
        self.assertEqual(status, 0, errors)
        self.assertLen(lines, 4)
        self.assertIn(
            "terngrad run: worker 1 on this machine was ended by signal 9 (Killed); restart 1 of 1",
            errors,
        )

    def test_sigterm_reaches_all_and_their_status_is_returned(self):
        process = start("-np", "2", SCRIPT, "save")
        wait_for(process, "ready", 2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 75)
        self.assertEndsWith(process.stderr.read(), "terngrad run: ended by SIGTERM\n")

    def test_ctrl_c_reaches_each_process_once(self):
        process = start("-np", "2", SCRIPT, "wait")
        wait_for(process, "ready", 2)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        errors = process.stderr.read().splitlines()
        self.assertEqual(errors[-1], "terngrad run: interrupted")
        self.assertLen([line for line in errors if line.endswith("] KeyboardInterrupt")], 2)

    def test_second_signal_does_not_wait(self):
        process = start("-np", "2", SCRIPT, "deaf")
        wait_for(process, "ready", 2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 130)

    def test_killed_launcher_takes_its_processes_along(self):
        process = start("-np", "1", SCRIPT, "wait")
        wait_for(process, "ready", 1)
        process.kill()
        # The process holds the pipes open until it ends.
        self.assertEqual(result(process, 60)[2], -signal.SIGKILL)

    def test_a_lost_machine_0_has_the_status_of_a_lost_machine(self):
        cluster = ("--nodes", "2", "--chief", f"127.0.0.1:{hosts.free_port()}")
        # Machines need different addresses.
        cluster += ("--name", "localhost", "--node")
        first, second = (start(*cluster, node, SCRIPT, "wait") for node in "01")
        for process in (first, second):
            read_until(process, "ready", 1)
        first.kill()
        _, errors, status = result(second)
        self.assertEqual(status, 3, errors)
        self.assertIn("lost machine 0: the connection ended", errors[-1])
        result(first)

    def test_programs_modules_and_variables(self):
        python, names = os.path.basename(sys.executable), ("A", "B", "TERNGRAD_TF_LOCAL_RANK")
        lines, errors, status = result(
            start("--env", "A=1", "--env", "B", python, SCRIPT, "environment", *names, B="2")
        )
        self.assertEqual(status, 0, errors)
        self.assertEqual(lines[1], "[0] A=1 B=2 TERNGRAD_TF_LOCAL_RANK=0")
        lines, errors, status = result(start("-m", "json.tool", "--help"))
        self.assertEqual(status, 0, errors)
        self.assertStartsWith(lines[0], "[0] usage")

    def test_workers_and_servers_at_addresses_have_their_own_variables(self):
        ports = [hosts.free_port() for _ in range(3)]
        first, second, server = (f"127.0.0.1:{port}" for port in ports)
        where = ("--worker-hosts", f"{first},{second}", "--ps-hosts", server)
        each = ("--each", "A=1", "--each", "A=x y", "--each", "B=3", "--each", "B=$(4)")
        names = ("TERNGRAD_TF_JOB", "TERNGRAD_TF_TASK", "TERNGRAD_TF_LOCAL_RANK", "A", "B")
        logs = os.path.join(self.get_temp_dir(), "logs/{rank}.txt")
        command = (*where, *each, "--log-dir", logs, SCRIPT, "environment", "TF_CONFIG", *names)
        lines, errors, status = result(start(*command))
        self.assertEqual(status, 0, errors)
        self.assertLen(lines, 6)
        jobs = {"worker": [first, second], "ps": [server]}
        for label, job, index, values in (
            ("0", "worker", 0, "LOCAL_RANK=0 A=1 B=3"),
            ("1", "worker", 1, "LOCAL_RANK=1 A=x y B=$(4)"),
            ("ps 0", "ps", 0, "LOCAL_RANK=0 A=None B=None"),
        ):
            config = {"cluster": jobs, "task": {"type": job, "index": index}}
            line = f"TF_CONFIG={json.dumps(config)} TERNGRAD_TF_JOB={job} TERNGRAD_TF_TASK={index}"
            line = f"{line} TERNGRAD_TF_{values}"
            self.assertIn(f"[{label}] {line}", lines)
            log = pathlib.Path(logs.replace("{rank}", label.replace(" ", "_")))
            self.assertIn(line, log.read_text(encoding="utf-8").splitlines())
        # A dry run prints shell commands without secrets and without the shell's environment.
        lines, errors, status = result(
            start("--dry-run", *command, TF_MINE="7", TERNGRAD_TF_TOKEN=TOKEN)
        )
        self.assertEqual((status, errors), (0, []))
        self.assertLen(lines, 3)
        self.assertNotIn(TOKEN, "".join(lines))
        self.assertNotIn("TF_MINE", "".join(lines))
        self.assertStartsWith(lines[1], "worker 1 on this machine: cd ")
        words = shlex.split(lines[1])
        self.assertIn("A=x y", words)
        self.assertEqual(words[-len(names) - 3 :], [SCRIPT, "environment", "TF_CONFIG", *names])

    def test_a_machine_starts_its_devices_of_a_rank_table(self):
        def table(*devices):
            servers = {}
            for rank, (server, device, address) in enumerate(devices):
                entry = {"rank_id": str(rank), "device_id": str(device), "device_ip": address}
                servers.setdefault(server, []).append(entry)
            listed = [{"server_id": name, "device": found} for name, found in servers.items()]
            path = os.path.join(self.get_temp_dir(), "table.json")
            written = {"version": "1.0", "status": "completed", "server_list": listed}
            pathlib.Path(path).write_text(json.dumps(written), encoding="utf-8")
            return ("--rank-table", path)

        names = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG")
        # A value from the shell's environment would take precedence.
        shown = os.environ.pop(names[0], None)
        if shown is not None:
            self.addCleanup(os.environ.__setitem__, names[0], shown)
        port = hosts.free_port()
        # As in the tutorial: no machine has the name and addresses of the only server.
        only = table(("10.*.*.*", 4, "192.1.27.6"), ("10.*.*.*", 5, "192.2.27.6"))
        command = (*only, "--port", str(port), SCRIPT, "environment", *names)
        lines, errors, status = result(start(*command))
        self.assertEqual(status, 0, errors)
        self.assertLen(lines, 4)
        workers = [f"127.0.0.1:{port + rank}" for rank in (0, 1)]
        for rank, device in ((0, 4), (1, 5)):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            config = json.dumps(config)
            self.assertIn(f"[{rank}] CUDA_VISIBLE_DEVICES={device} TF_CONFIG={config}", lines)
        # Variables of each worker and of all come beside the table's.
        for more, expected in (
            (("--each", "A=1", "--each", "A=2"), ["[0] A=1 {}=4", "[1] A=2 {}=5"]),
            (("--env", f"{names[0]}=7", "--env", "A=3"), ["[0] A=3 {}=7", "[1] A=3 {}=7"]),
        ):
            lines, errors, status = result(
                start(*only, "--port", str(port), *more, SCRIPT, "environment", "A", names[0])
            )
            self.assertEqual(status, 0, errors)
            self.assertContainsSubset([line.format(names[0]) for line in expected], lines)
        # With several machines, each starts its own processes.
        others = (("198.51.100.1", 0, "198.51.100.1"), ("other", 3, "127.0.0.1"))
        lines, errors, status = result(
            start(*table(*others), "--port", str(port), SCRIPT, "environment", *names)
        )
        self.assertEqual(status, 0, errors)
        self.assertLen(lines, 2)
        workers = [f"198.51.100.1:{port}", f"127.0.0.1:{port}"]
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 1}}
        self.assertEqual(lines[1], f"[1] CUDA_VISIBLE_DEVICES=3 TF_CONFIG={json.dumps(config)}")
        far = (("198.51.100.1", 0, "198.51.100.1"), ("203.0.113.9", 0, "203.0.113.9"))
        for more, message in (
            ((), "`server_id` must be given: no address of 198.51.100.1, 203.0.113.9 is this"),
            (("--server-id", "x"), "`server_id` must be one of 198.51.100.1, 203.0.113.9. Rec"),
            (("--rank-table", "/no/such"), "/no/such: No such file"),
        ):
            _, errors, status = result(start(*table(*far), *more, SCRIPT))
            self.assertEqual((status, len(errors)), (2, 1))
            self.assertIn(message, errors[0])

    def test_script_with_the_strategy_trains_one_model(self):
        script = str(pathlib.Path(__file__).with_name("train_keras.py"))
        lines, errors, status = result(start("-np", "2", script), 300)
        self.assertEqual(status, 0, errors)
        first, second = sorted(lines)
        self.assertStartsWith(first, "[0] 2 processes, weights ")
        self.assertEqual(first[4:], second[4:])
        # TensorFlow's messages during import are hidden.
        self.assertEmpty(errors)

    def test_tensorflows_remarks_are_hidden_by_level(self):
        lines = [
            "WARNING: All log messages before absl::InitializeLog() is called are written to"
            " STDERR",
            "I0000 00:00:1795783979.734903    7565 port.cc:153] oneDNN custom operations are on",
            "W0000 00:00:1795783979.734903    7565 port/x.cc:153] a warning",
            "I0000 00:00:1795783979.734903    7565 compiler.h:188] a remark of a header",
            "E0000 00:00:1795783979.734903    7565 port.cc:153] an error",
            "I1127 12:44:11.123456 140 train.py:12] the script's own",
            "WARNING: the script's own",
        ]
        for level, shown in (
            ("2", lines[4:]),
            ("3", lines[4:]),
            ("0", lines),
            ("x", lines),
            ("", lines),
        ):
            hide = remarks.Remarks({"TF_CPP_MIN_LOG_LEVEL": level}).hide
            self.assertEqual([line for line in lines if not hide(line)], shown)

    def test_line_without_an_end_is_cut(self):
        lines, errors, status = result(start(SCRIPT, "no_line_end"))
        self.assertEqual(status, 0, errors)
        self.assertEqual(sum(line.count("x") for line in lines[1:]), 200_000)
        self.assertLess(max(map(len, lines)), 100_000)

    @pytest.mark.slow
    def test_impossible_commands_are_one_line(self):
        token_file = os.path.join(self.get_temp_dir(), "token")
        pathlib.Path(token_file).write_text("short", encoding="utf-8")
        for arguments, message in (
            ([], "a script, -m module or program must be given"),
            (["nope.py"], "this machine: no file"),
            (["no_such_program"], "this machine: no program no_such_program"),
            (["--worker-hosts", "", SCRIPT], "`--worker-hosts` must not be empty. Received: ''"),
            (["--rank-table", "", SCRIPT], "`--rank-table` must not be empty. Received: ''"),
            (["--log-dir", "", SCRIPT], "`--log-dir` must not be empty. Received: ''"),
            (["-np", "0", SCRIPT], "`-np` must be a positive integer. Received: -np=0"),
            (["-H", "a:0", SCRIPT], "`-H` must hold host[:slots],... Received: 'a:0'"),
            (["-H", "a,a", SCRIPT], "`-H` must name each host once. Received twice: a"),
            (["-H", "a,localhost", SCRIPT], "Received: localhost"),
            (["-H", "a", "--node", "1", SCRIPT], "`-H` must not be given with --nodes"),
            (["-H", "a", "-np", "2", SCRIPT], "`-np` must be at most the 1 slots"),
            (["--nodes", "2", SCRIPT], "`--nodes`, `--node` and `--chief` must be given together"),
            (["--nodes", "2", "--node", "2", "--chief", "a:1", SCRIPT], "`--node` must be 0 to 1"),
            (
                ["--nodes", "2", "--node", "1", "--chief", "a:1", "--name", "a b", SCRIPT],
                "`--name` must be a host name or an address. Received: 'a b'",
            ),
            (
                ["--nodes", "0", "--node", "0", "--chief", "a:1", SCRIPT],
                "`--nodes` must be a positive integer. Received: --nodes=0",
            ),
            (
                ["--nodes", "2", "--node", "0", "--chief", "a:65535", SCRIPT],
                "`--chief` must name a port of at most 65534",
            ),
            (
                ["--nodes", "2", "--node", "1", "--chief", "a:65534", "-np", "2", SCRIPT],
                "`--chief` must name a port of at most 65533",
            ),
            (
                ["-H", "a:2,b", "--port", "65535", SCRIPT],
                "`--port` must name a port of at most 65534, since the processes take the next"
                " ones. Received: 65535",
            ),
            (["-H", "a,b", "--ssh", "-i 'key", SCRIPT], "`--ssh` must be words as in a shell"),
            (
                ["--nodes", "2", "--node", "1", "--chief", "a", SCRIPT],
                "`--chief` must be host:port",
            ),
            (["--max-restarts", "-1", SCRIPT], "`--max-restarts` must be 0 or more"),
            (["--grace", "nan", SCRIPT], "`--grace` must be positive seconds"),
            (["--start-timeout", "1e300", SCRIPT], "`--start-timeout` must be positive seconds"),
            (["--min-workers", "1", SCRIPT], "`--min-workers` must be given with --max-restarts"),
            (["--sync", SCRIPT], "`--sync` must be given with -H"),
            (["--ps-hosts", "a:1", SCRIPT], "`--ps-hosts` must be given with --worker-hosts"),
            (["--worker-hosts", "a", SCRIPT], "`--worker-hosts` must hold host:port"),
            (["--worker-hosts", "a:1,$(b):1", SCRIPT], "`--worker-hosts` must hold host:port"),
            (["--worker-hosts", "a:1", "-H", "b", SCRIPT], "must not be given together with -H"),
            (
                ["--worker-hosts", "a:1", "--ps-hosts", "a:1", SCRIPT],
                "`--ps-hosts` must name no worker. Received: a:1",
            ),
            (["-np", "2", "--each", "A=1", SCRIPT], "`--each A=...` must be given once for each"),
            (["--each", "A", SCRIPT], "`--each` must be NAME=VALUE. Received: 'A'"),
            (
                ["--nodes", "2", "--node", "1", "--chief", "a:1", "--dry-run", SCRIPT],
                "`--dry-run` must be given with -np",
            ),
            (["--env", "NOT_SET", SCRIPT], "`--env` must be NAME=VALUE"),
            (["--env", "TF_CONFIG=x", SCRIPT], "`--env` must not name TF_CONFIG"),
            (["--each", "TERNGRAD_TF_TASK=1", SCRIPT], "`--each` must not name TERNGRAD_TF_TASK"),
            (["--token-file", token_file, SCRIPT], "must hold a token of 16 to 1000"),
            (["--token-file", "nope", SCRIPT], "nope: No such file"),
        ):
            with self.subTest(arguments=arguments):
                _, errors, status = result(start(*arguments))
                self.assertEqual(status, 2)
                self.assertLen(errors, 1)
                self.assertIn(message, errors[0])
        _, errors, status = result(start(SCRIPT, TF_CONFIG="{}"))
        self.assertEqual((len(errors), status), (1, 2))
        self.assertIn("TF_CONFIG is set already", errors[0])
        _, errors, status = result(start(SCRIPT, SLURM_PROCID="0", SLURM_NTASKS="2"))
        self.assertEqual((len(errors), status), (1, 2))
        self.assertIn("lacks SLURM_STEP_NODELIST: start terngrad run by srun, or give", errors[0])
        gone = pathlib.Path(self.get_temp_dir(), "gone")
        gone.mkdir()
        command = (
            f'cd "{gone}" && rmdir "{gone}" && "{sys.executable}" -m terngrad_tf run -np 1 true'
        )
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        self.assertEqual(
            (done.returncode, done.stderr),
            (2, "terngrad run: error: the working folder does not exist any more\n"),
        )

    def test_port_that_is_taken_is_named(self):
        port = hosts.free_port()
        listener = subprocess.Popen(
            [
                *(sys.executable, "-c"),
                f"import socket; s = socket.create_server(('', {port})); print(1, flush=True);"
                " s.accept()",
            ],
            stdout=subprocess.PIPE,
        )
        self.addCleanup(listener.wait)
        self.addCleanup(listener.kill)
        listener.stdout.readline()
        _, errors, status = result(start("-H", "127.0.0.1", "--port", str(port), SCRIPT))
        self.assertEqual(status, 2)
        self.assertIn(f"cannot listen on port {port}: another program uses it", errors[-1])


class SeveralMachinesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.folder.mkdir()
        self.cluster = hosts.up(self, "tlrun", "10.91.0", self.folder)
        self.names = ",".join(self.cluster.names)
        self.ssh = ("--ssh", f"-F {self.cluster.ssh_config}")

    def start(self, *arguments, host=0, **environment):
        return self.cluster.start(*arguments, host=host, folder=self.folder, **environment)

    def test_over_ssh(self):
        over_ssh = ("-H", self.names, *self.ssh)
        variables = ("TF_CONFIG", "TF_MINE", "TERNGRAD_TF_TOKEN")
        lines, errors, status = result(
            self.start(
                *over_ssh, SCRIPT, "environment", *variables, TF_MINE="7", TERNGRAD_TF_TOKEN=TOKEN
            )
        )
        self.assertEqual(status, 0, errors)
        told = next(line for line in lines if line.startswith("[1] TF_CONFIG="))
        addresses = [f"{name}:2222" for name in self.cluster.names]
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}
        self.assertEqual(
            told, f"[1] TF_CONFIG={json.dumps(config)} TF_MINE=7 TERNGRAD_TF_TOKEN={TOKEN}"
        )
        # The first host's file is copied to the other; here they share the folder, so it is copied
        # onto itself.
        (self.folder / "own.py").write_text("print('own')\n", encoding="utf-8")
        lines, errors, status = result(self.start(*over_ssh, "--sync", "own.py"))
        self.assertEqual(status, 0, errors)
        self.assertCountEqual(lines, ["[0] own", "[1] own"])
        second = self.cluster.names[1]
        for arguments, code, message in (
            ([*over_ssh, SCRIPT, "fail"], 1, f"worker 1 on {second} ended with status 1: ValueErr"),
            ([*over_ssh, "--python", "/nope", "-m", "this"], 2, f"{second}: has no program /nope"),
            (["-H", self.names, SCRIPT], 2, f"{second}: ssh failed: "),
            (["-H", f"{self.names},10.91.0.99", *self.ssh, SCRIPT], 2, "10.91.0.99: ssh failed: "),
        ):
            with self.subTest(arguments=arguments):
                _, errors, status = result(self.start(*arguments))
                self.assertEqual(status, code, errors)
                self.assertStartsWith(errors[-1], f"terngrad run: {message}")

    @pytest.mark.slow
    def test_by_hand(self):
        token = self.folder / "token"
        token.write_text(TOKEN + "\n", encoding="utf-8")
        other = self.folder / "other"
        other.write_text(TOKEN * 2 + "\n", encoding="utf-8")
        chief = ("--nodes", "2", "--chief", f"{self.cluster.names[0]}:2300")

        def both(*arguments, file=token):
            return [
                self.start(
                    *(*chief, "--node", str(i), "--token-file", str(f), SCRIPT, *arguments), host=i
                )
                for i, f in ((0, token), (1, file))
            ]

        first, second = map(result, both("end"))
        self.assertEqual((first[2], second[2]), (0, 0), first[1] + second[1])
        self.assertEqual(first[0] + second[0], [f"[{i}] worker {i} of 2 end" for i in (0, 1)])
        # One machine gets SIGTERM: all save, and both exit with the same status.
        first, second = both("save")
        wait_for(second, "ready", 1)
        second.send_signal(signal.SIGTERM)
        self.assertEqual((first.wait(60), second.wait(60)), (75, 75))
        first, second = both("end", file=other)
        _, errors, status = result(second)
        self.assertEqual(status, 2)
        self.assertIn("another token (--token-file) [terngrad explain E30]", errors[-1])
        first.send_signal(signal.SIGTERM)
        self.assertNotEqual(first.wait(60), 0)

    def test_a_signal_to_every_machine_leaves_all_time_to_save(self):
        mark = self.folder / "mark"
        first, second = (
            self.start(
                *("--nodes", "2", "--node", str(i), "--chief", f"{self.cluster.names[0]}:2300"),
                *(SCRIPT, "save_slowly", str(mark)),
                host=i,
            )
            for i in (0, 1)
        )
        for process in (first, second):
            read_until(process, "ready", 1)
        for process in (second, first):
            process.send_signal(signal.SIGTERM)
            read_until(process, "told", 20)
        mark.touch()
        self.assertEqual([result(process)[2] for process in (first, second)], [75, 75])

    @pytest.mark.slow
    def test_continues_without_a_lost_machine_and_with_it_when_it_is_back(self):
        mark = self.folder / "was_alone"
        elastic = ("--max-restarts", "1", "--min-workers", "1", SCRIPT, "elastic", str(mark))
        process = self.start("-H", self.names, *self.ssh, *elastic)
        for line in process.stdout:
            if line.startswith("[1] worker 1 of 2"):
                break
        self.cluster.network.cut(1)
        for line in process.stdout:
            if line.startswith("[0] worker 0 of 1"):
                break
        self.cluster.network.join(1)
        lines, errors, status = result(process, 200)
        self.assertEqual(status, 0, errors)
        self.assertCountEqual(
            [line[:17] for line in lines], [f"[{i}] worker {i} of 2" for i in (0, 1)]
        )
        self.assertIn(f"{self.cluster.names[1]} is back", "\n".join(errors))


class PlacesTest(tf.test.TestCase):
    def test_hosts(self):
        (first, second) = parse_hosts("me@a.b, [fe80::1]:2")
        self.assertEqual((first.ssh_target, first.slots), ("me@a.b", 1))
        self.assertEqual((second.address(5), second.slots), ("[fe80::1]:5", 2))

    def test_slurm(self):
        variables = {
            "SLURM_PROCID": "2",
            "SLURM_NTASKS": "3",
            "SLURM_JOB_ID": "12345",
            "SLURM_STEP_NODELIST": "gpu[07-08,10],login",
            "SLURM_LOCALID": "1",
        }
        place = batch_systems.slurm_place(variables)
        self.assertEqual((place.num_nodes, place.node, place.offset), (3, 2, 1))
        self.assertEqual(place.chief, ("gpu07", 22345))
        self.assertIsNone(batch_systems.slurm_place({}))
        self.assertIsNone(batch_systems.slurm_place(variables | {"SLURM_NTASKS": "1"}))
        with self.assertRaisesRegex(ValueError, "lacks SLURM_JOB_ID"):
            batch_systems.slurm_place({k: v for k, v in variables.items() if "JOB" not in k})
        with self.assertRaisesRegex(ValueError, "SLURM_NTASKS must be a number of 0 or more"):
            batch_systems.slurm_place(variables | {"SLURM_NTASKS": "2(x2)"})
        for nodes, host in (
            *(("a,b", "a"), ("a[1,3]", "a1"), ("a[1-2]-ib,b", "a1-ib"), ("a", "a")),
            *(("rack[1-2]-[07,09],b", "rack1-07"), ("a,b[1-2]", "a")),
        ):
            self.assertEqual(batch_systems.first_host(nodes), host)

    def test_kubernetes(self):
        self.assertEqual(batch_systems.kubernetes_node({"JOB_COMPLETION_INDEX": "3"}, "x"), 3)
        with self.assertRaisesRegex(ValueError, "JOB_COMPLETION_INDEX must be a number"):
            batch_systems.kubernetes_node({"JOB_COMPLETION_INDEX": "x"}, "x")
        inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        self.assertEqual(batch_systems.kubernetes_node(inside, "trainer-2"), 2)
        self.assertIsNone(batch_systems.kubernetes_node(inside, "trainer"))
        self.assertIsNone(batch_systems.kubernetes_node({}, "trainer-2"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
