"""Servers that answer with any bytes: the file arrives, or one line gives the reason."""

import hashlib
import os
import sys

import pytest

from slim_data import DataError
from slim_data.files import download
from tests.fuzz import fuzzing
from tests.slim_data import samples, servers

NAME = "file"
PARTIAL = f".{NAME}.partial"
DATA = bytes(range(256)) * 4
RANGE = b"HTTP/1.1 206 x\r\nContent-Range: bytes 256-1023/1024\r\n\r\n" + DATA[256:]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + DATA + b"\r\n0\r\n\r\n"
LENGTH = b"HTTP/1.0 200 OK\r\nContent-Length: 1024\r\nContent-Type: text/plain\r\n\r\n" + DATA


class DownloadsTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.folder = os.path.join(self.root, "data")
        self.server = servers.Server({NAME: DATA})
        self.addCleanup(self.server.close)

    def test_answers_of_servers(self):
        redirections = [
            f"HTTP/1.1 302 Found\r\nLocation: {place}\r\n\r\n".encode()
            for place in (
                self.server.url(NAME),
                self.server.url("x"),
                "/file",
                "file:///etc/passwd",
            )
        ]
        seeds = [RANGE, CHUNKED, LENGTH, b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH, *redirections]
        digest = hashlib.sha256(DATA).hexdigest()
        sizes = {True: len(DATA), False: None}

        def check(answer):
            is_known = len(answer) % 2 == 0
            file = download.File(NAME, (self.server.url(NAME),), sizes[is_known], digest)
            os.makedirs(self.folder, exist_ok=True)
            with open(os.path.join(self.folder, PARTIAL), "wb") as partial:
                partial.write(DATA[: len(answer) % 512])
            # Repeated, resumed and redirected requests get the same answer.
            self.server.faults = [servers.raw(answer)] * 9
            try:
                path = download.fetch_file(file, self.folder, pauses=(), patience=2)
            except DataError as error:
                self.assert_clear(error, NAME)
                self.assertIn(os.listdir(self.folder), ([], [PARTIAL]))
            else:
                with open(path, "rb") as found:
                    self.assertEqual(found.read(), DATA)
                self.assertEqual(os.listdir(self.folder), [NAME])
                os.remove(path)
            self.assertEqual(os.listdir(self.root), ["data"])

        self.fuzz("answers of servers", fuzzing.mutated(seeds), check)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
