"""Which processes of a rank table a machine starts."""

import json
import os
import sys
import tempfile
import unittest

import pytest

from terngrad_tf.bin.jobs import local_ranks
from tests.bin import samples


def table(servers):
    """A rank table; `servers` maps server_id to [(rank_id, device_id, device_ip)]."""
    entries = [
        {
            "server_id": server,
            "device": [
                {"rank_id": str(rank), "device_id": str(device), "device_ip": ip}
                for rank, device, ip in devices
            ],
        }
        for server, devices in servers.items()
    ]
    return {"version": "1.0", "status": "completed", "server_list": entries}


class LocalRanksTest(unittest.TestCase):
    def call(self, servers, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(table(servers), file)
            return samples.call(
                local_ranks.main, "local_ranks", "--rank_table_file", path, *arguments
            )

    def test_processes_of_the_only_server_meet_on_the_loopback_address(self):
        # As in the tutorial: its name and addresses are nobody's.
        server = {"10.*.*.*": [(1, 5, "192.2.27.6"), (0, 4, "192.1.27.6")]}
        status, out, _ = self.call(server, "--port", 7000)
        hosts = "127.0.0.1:7000,127.0.0.1:7001"
        self.assertEqual((status, out), (0, f"0 4 {hosts}\n1 5 {hosts}\n"))

    def test_of_several_servers_this_machine_is_the_one_with_its_address_or_that_is_named(self):
        servers = {
            "198.51.100.1": [(0, 0, "198.51.100.1"), (1, 1, "198.51.100.1")],
            "other": [(2, 0, "127.0.0.1")],
        }
        hosts = "198.51.100.1:2222,198.51.100.1:2223,127.0.0.1:2222"
        self.assertEqual(self.call(servers)[:2], (0, f"2 0 {hosts}\n"))
        named = self.call(servers, "--server_id", "198.51.100.1")
        self.assertEqual(named[:2], (0, f"0 0 {hosts}\n1 1 {hosts}\n"))

    def test_what_is_no_such_machine_or_file_is_one_line(self):
        servers = {
            "198.51.100.1": [(0, 0, "198.51.100.1")],
            "203.0.113.9": [(1, 0, "203.0.113.9")],
        }
        for arguments, message in (
            (
                (),
                "`server_id` must be given: no address of 198.51.100.1, 203.0.113.9 is this",
            ),
            (
                ("--server_id", "x"),
                "`server_id` must be one of 198.51.100.1, 203.0.113.9. Received: 'x'",
            ),
            (("--rank_table_file", "/no/such"), "`rank_table_file` /no/such: No such file"),
        ):
            status, out, err = self.call(servers, *arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1))
            self.assertIn(message, err)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
