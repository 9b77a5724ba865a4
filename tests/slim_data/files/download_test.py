"""Downloads from a real server: verified, resumed, and complete or absent."""

import fcntl
import hashlib
import os
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from slim_data.common.errors import DataError
from slim_data.datasets import flowers, mnist
from slim_data.files import download
from tests.fuzz import fuzzing
from tests.slim_data import samples, servers

NAME = "images.gz"
PARTIAL = f".{NAME}.partial"
DATA = os.urandom(700_001)
QUICKLY = (0, 0)


def file_of(urls, data=DATA):
    return download.File(NAME, tuple(urls), len(data), hashlib.sha256(data).hexdigest())


SLOW_PROGRAM = """
import time
from slim_data.files import download
file = download.{!r}
download.fetch_file(file, {!r}, progress=lambda done: time.sleep(0.05))
"""


class DownloadTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(samples.new_folder(self), "new")
        self.server = servers.Server({NAME: DATA})
        self.addCleanup(self.server.close)
        self.file = file_of([self.server.url(NAME)])

    def fetch(self, file=None, **arguments):
        return download.fetch_file(file or self.file, self.folder, pauses=QUICKLY, **arguments)

    def assert_whole(self):
        self.assertEqual(samples.contents(self.folder), {NAME: DATA})

    def assert_refused(self, *parts, file=None, **arguments):
        with self.assertRaises(DataError) as caught:
            self.fetch(file, **arguments)
        self.assertTrue(str(caught.exception).isprintable())
        self.assertLess(len(str(caught.exception)), 600)
        for part in (NAME, *parts):
            self.assertIn(part, str(caught.exception))
        self.assertFalse(os.path.exists(os.path.join(self.folder, NAME)))

    def ranges(self):
        return [asked for _, asked in self.server.requests]

    def test_a_file_arrives_whole_and_is_then_kept(self):
        seen = []
        path = self.fetch(progress=seen.append)
        self.assertEqual(path, os.path.join(self.folder, NAME))
        self.assert_whole()
        self.assertEqual(seen[-1], len(DATA))
        self.assertEqual(seen, sorted(set(seen)))
        self.assertEqual(self.fetch(), path)
        self.assertEqual(self.ranges(), [None])

    def test_files_that_are_there_are_left_as_they_are(self):
        os.mkdir(self.folder)
        path = os.path.join(self.folder, NAME)
        with open(path, "wb") as file:
            file.write(b"the user's own")
        self.assertEqual(self.fetch(), path)
        self.assertEqual(samples.contents(self.folder), {NAME: b"the user's own"})
        self.assertEqual(self.server.requests, [])

    def test_a_broken_download_resumes_where_it_broke(self):
        self.server.faults = [servers.breaking_after(300_000), servers.breaking_after(1)]
        self.fetch()
        self.assert_whole()
        self.assertEqual(self.ranges(), [None, "bytes=300000-", "bytes=300001-"])

    def test_the_next_call_resumes_where_one_gave_up(self):
        self.server.faults = [servers.breaking_after(1000)] + [servers.close_connection] * 3
        self.assert_refused("cannot be downloaded", "Run again to resume")
        self.assertEqual(samples.contents(self.folder), {PARTIAL: DATA[:1000]})
        self.fetch()
        self.assert_whole()
        self.assertEqual(self.ranges()[-1], "bytes=1000-")

    def test_attempts_that_receive_data_do_not_count(self):
        self.server.faults = [servers.breaking_after(70_000) for _ in range(9)]
        self.fetch()
        self.assert_whole()

    def test_servers_without_ranges_send_it_again(self):
        self.server.faults = [servers.breaking_after(400_000), servers.without_ranges]
        self.fetch()
        self.assert_whole()

    def test_a_wrong_checksum_leaves_nothing(self):
        self.server.files[NAME] = DATA[:-1] + bytes([DATA[-1] ^ 1])
        self.assert_refused("SHA-256 must be", hashlib.sha256(DATA).hexdigest())
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.ranges(), [None])

    def test_a_resumed_file_of_two_halves_that_differ_is_fetched_again(self):
        os.mkdir(self.folder)
        for partial in (b"x" * 1000, b"x" * len(DATA), b"x" * (len(DATA) + 1)):
            with open(os.path.join(self.folder, PARTIAL), "wb") as file:
                file.write(partial)
            self.fetch()
            self.assert_whole()
            os.remove(os.path.join(self.folder, NAME))

    def test_a_partial_file_that_is_whole_needs_no_server(self):
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, PARTIAL), "wb") as file:
            file.write(DATA)
        self.fetch()
        self.assert_whole()
        self.assertEqual(self.server.requests, [])

    def test_a_file_that_became_shorter_is_refused(self):
        self.server.faults = [servers.breaking_after(1000)]
        self.server.files[NAME] = DATA[:900]
        self.assert_refused()

    def test_files_of_another_length_are_refused(self):
        self.server.faults = [servers.instead(DATA + b"x")]
        self.assert_refused("longer than its 700001 bytes")
        self.server.faults = [servers.endless]
        self.assert_refused("longer than its 700001 bytes")
        self.assertEqual(os.listdir(self.folder), [])
        self.server.files[NAME] = DATA[:-1]
        self.assert_refused("700000 of 700001 bytes")

    def test_the_next_address_is_tried_if_one_fails(self):
        missing = self.server.url("nothing")
        self.fetch(file_of([missing, self.server.url(NAME)]))
        self.assert_whole()
        self.assertEqual([name for name, _ in self.server.requests], ["nothing", NAME])

    def test_absent_files_are_requested_once(self):
        self.assert_refused("HTTP status 404", file=file_of([self.server.url("nothing")]))
        self.assertLen(self.server.requests, 1)
        self.assertEqual(os.listdir(self.folder), [])

    def test_requests_to_busy_servers_are_repeated(self):
        self.server.faults = [servers.status(503), servers.status(429)]
        self.fetch()
        self.assert_whole()

    def test_servers_cannot_keep_a_download_waiting(self):
        ok = b"HTTP/1.1 200 OK\r\n"
        chunked = ok + b"Transfer-Encoding: chunked\r\n\r\n"
        moved = b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"
        for what, answer in {
            "continues": servers.repeating(b"HTTP/1.1 100 Continue\r\n\r\n"),
            "a header that drips": servers.repeating(b"x", ok + b"X: ", seconds=0.01),
            "headers without a status": servers.repeating(b"x", seconds=0.01),
            "a body that drips": servers.repeating(b"x", ok + b"\r\n", seconds=0.01),
            "the size of a chunk that drips": servers.repeating(b"0", chunked, seconds=0.01),
            "trailers": servers.repeating(b"X: y\r\n", chunked + b"0\r\n"),
            "nothing": servers.silent_after(ok),
        }.items():
            self.server.faults = [answer] * 3
            with self.subTest(what=what), fuzzing.limited():
                self.assert_refused("per second for 0.2 seconds", patience=0.2)
        self.server.faults = [servers.repeating(b"x" * 9000, moved)]
        with fuzzing.limited():
            self.assert_refused("HTTP status 404")
        self.fetch()
        self.assert_whole()

    def test_slow_servers_are_waited_for_if_they_are_not_too_slow(self):
        seconds = len(DATA) / 2**20
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(DATA)

        def in_parts(handler, data):
            handler.wfile.write(head)
            for start in range(0, len(data), 2**15):
                handler.wfile.write(data[start : start + 2**15])
                time.sleep(seconds / 22)
            handler.close_connection = True

        self.server.faults = [in_parts]
        self.fetch(patience=0.3)
        self.assert_whole()
        self.assertLen(self.server.requests, 1)

    def test_redirections_are_followed_to_the_web_only(self):
        secret = os.path.join(samples.new_folder(self), "secret")
        with open(secret, "wb") as file:
            file.write(DATA)
        for place in (
            *(f"file://{secret}", "ftp://127.0.0.1/x", "data:,x", "gopher://x/", "javascript:x"),
            *("http://[::1", "http://[x]/", "http://127.0.0.1:port/", "http://127.0.0.1:99999/"),
            f"http://127.0.0.1:{'9' * 400}/",
            *("http://", "http:///x", "http://%00/", "http://a b/", "http://" + "a" * 70 + "/"),
            *("//", "http://\xff/", "http://127.0.0.1:1/", "http://" + "a." * 4000, "\x1b[2J"),
        ):
            answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % place.encode("latin-1")
            self.server.faults = [servers.raw(answer)] * 20
            with self.subTest(case=place[:40]), fuzzing.limited():
                self.assert_refused("cannot be downloaded")
        self.server.files["there"] = DATA
        answer = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % self.server.url("there").encode()
        self.server.faults = [servers.raw(answer)]
        self.fetch()
        self.assert_whole()

    def test_answers_that_make_no_sense_are_one_printable_line(self):
        ok = b"HTTP/1.1 200 OK\r\n"
        for answer in (
            *(b"", b"\0" * 9, b"HTTP/9.9 x y\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n"),
            *(b"HTTP/1.1 404 \x1b[2J\x07" + b"x" * 60_000 + b"\r\n\r\n", b"x" * 70_000),
            b"HTTP/1.1 500 a\rb\x85\r\n\r\n",
            ok + b"X: y\r\n" * 200 + b"\r\n",
            ok + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
            ok + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nx",
            ok + b"Content-Length: -1\r\n\r\nx",
            ok + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx",
            ok + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nx",
            ok + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 60_000 + b"\r\nx",
        ):
            self.server.faults = [servers.raw(answer)] * 3
            with self.subTest(case=answer[:40]), fuzzing.limited():
                self.assert_refused("cannot be downloaded")

    def test_places_that_make_no_sense_do_not_mix_two_files(self):
        digits = "9" * 5000
        for place in (f"bytes {digits}-", "bytes 999-1/2", "bytes x-", "", "bytes 5-", "\xb9-"):
            os.makedirs(self.folder, exist_ok=True)
            with open(os.path.join(self.folder, PARTIAL), "wb") as file:
                file.write(DATA[:1000])
            answer = f"HTTP/1.1 206 x\r\nContent-Range: {place}\r\n\r\n".encode("latin-1")
            self.server.faults = [servers.raw(answer + DATA)]
            self.fetch()
            self.assert_whole()
            os.remove(os.path.join(self.folder, NAME))

    def test_a_refused_connection_is_one_line(self):
        other = servers.Server({})
        file = file_of([other.url(NAME)])
        other.close()
        self.assert_refused("127.0.0.1", "refused", file=file)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_killed_download_is_resumed(self):
        partial = os.path.join(self.folder, PARTIAL)
        program = SLOW_PROGRAM.format(self.file, self.folder)
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command) as process:
            while not (os.path.exists(partial) and os.path.getsize(partial)):
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            process.kill()
        there = os.path.getsize(partial)
        self.assertFalse(os.path.exists(os.path.join(self.folder, NAME)))
        self.fetch()
        self.assert_whole()
        self.assertEqual(self.ranges(), [None] + [f"bytes={there}-"] * (there < len(DATA)))

    def test_two_downloads_of_one_file_do_not_mix(self):
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, PARTIAL), "wb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assert_refused("another process is writing")

    def test_a_full_disk_leaves_no_incomplete_file(self):
        with samples.small_disk(self, 400) as self.folder:
            self.assert_refused("No space left on device")
            os.truncate(os.path.join(self.folder, PARTIAL), 0)
            small = file_of([self.server.url("small")], b"x")
            self.server.files["small"] = b"x"
            self.fetch(small)

    def test_folders_that_cannot_be_written_to_are_named(self):
        with open(self.folder, "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(DataError, "cannot be written: "):
            self.fetch()

    def test_only_absent_files_are_missing(self):
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, mnist.Mnist.downloads[1].name), "wb"):
            pass
        others = [file for file in mnist.Mnist.downloads if file != mnist.Mnist.downloads[1]]
        self.assertEqual(mnist.Mnist(self.folder).missing(), others)
        self.assertEqual(flowers.Flowers(self.folder).missing(), list(flowers.Flowers.downloads))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
