"""A local file server with configurable faults."""

import contextlib
import http.server
import re
import threading
import time


class Server:
    """Serves `files`, {name: bytes}, until `close`.

    Attributes:
        files: the served files; may be changed at any time.
        faults: list of functions of a request handler and the file's bytes. Each request takes one
            and is answered by it. Without faults, answers are correct.
        requests: list of (name, value of the Range header or None) so far.
        authorization: the required Authorization header; None: no header is required.
        authorizations: list of received Authorization headers, None for requests without one.
    """

    def __init__(self, files):
        self.files = files
        self.faults = []
        self.requests = []
        self.authorization = None
        self.authorizations = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.lstrip("/")
                server.requests.append((name, self.headers.get("Range")))
                given = self.headers.get("Authorization")
                server.authorizations.append(given)
                if server.authorization not in (None, given):
                    self.send_error(401)
                    return
                if name not in server.files:
                    self.send_error(404)
                    return
                answer = server.faults.pop(0) if server.faults else answer_correctly
                answer(self, server.files[name])

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, name):
        """Returns the address of a file."""
        return f"http://127.0.0.1:{self._server.server_port}/{name}"

    def close(self):
        """Stops the server; its address then refuses connections."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def answer_correctly(handler, data):
    """Answers with the requested part of the file."""
    send(handler, data, len(data))


def breaking_after(size):
    """Returns an answer that breaks the connection after `size` of the announced bytes."""
    return lambda handler, data: send(handler, data, size)


def without_ranges(handler, data):
    """Answers with the whole file, ignoring the Range header."""
    del handler.headers["Range"]
    send(handler, data, len(data))


def status(code):
    """Returns an answer that is only a status."""
    return lambda handler, data: handler.send_error(code)


def sending_on_to(url):
    """Returns an answer that redirects to another address."""

    def send_on(handler, data):
        del data
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return send_on


def web_page(handler, data):
    """Answers with an HTML page."""
    del data
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html; charset=utf-8")
    handler.send_header("Content-Length", "2")
    handler.end_headers()
    handler.wfile.write(b"hi")


def instead(other):
    """Returns an answer with other bytes than the file's."""
    return lambda handler, data: send(handler, other, len(other))


def endless(handler, data):
    """Answers with an endless file, without a length."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(data)
    except OSError:
        pass


def raw(answer):
    """Returns an answer of raw bytes instead of an HTTP response."""

    def send_raw(handler, data):
        del data
        handler.wfile.write(answer)
        handler.close_connection = True

    return send_raw


def repeating(answer, before=b"", seconds=0):
    """Returns an answer that repeats bytes without end, with a pause after each."""

    def send_again(handler, data):
        del data
        handler.close_connection = True
        try:
            handler.wfile.write(before)
            while True:
                handler.wfile.write(answer)
                time.sleep(seconds)
        except OSError:
            pass

    return send_again


def silent_after(before):
    """Returns an answer that begins with some bytes, and waits until the client goes away."""

    def wait(handler, data):
        del data
        handler.close_connection = True
        handler.wfile.write(before)
        with contextlib.suppress(OSError):
            handler.rfile.read(1)

    return wait


def close_connection(handler, data):
    """Closes the connection without an answer."""
    del data
    handler.close_connection = True
    handler.connection.close()


def send(handler, data, size):
    """Sends `size` bytes of the requested range, under a header that announces all of it."""
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    start = int(asked[1]) if asked else 0
    if start and start >= len(data):
        handler.send_error(416)
        return
    handler.send_response(206 if asked else 200)
    if asked:
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    handler.send_header("Content-Length", str(len(data) - start))
    handler.end_headers()
    handler.wfile.write(data[start : start + size])
    handler.close_connection = True
