"""Python programs that need not load TensorFlow: forks of a process that has loaded it.

Each test process has one such server. The command of a program is a small client, which looks like
the program from outside: it has its output, its exit status, and passes signals on. If the client
is killed, the program is, too.
"""

import contextlib
import functools
import gc
import json
import os
import pathlib
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
_LENGTH = struct.Struct("!I")
_PASSED_ON = signal.SIGINT, signal.SIGTERM
# Variables with these beginnings count while libraries load.
_LOADING = tuple("CUDA DNNL GLIBC KERAS LD_ OMP ONEDNN OPENBLAS PYTHON TF_ XLA".split())
# These count later, or only in the tests' own process.
_LATER = "PYTHONPATH", "TF_CONFIG"


def command(*arguments):
    """Returns a command like `[sys.executable, *arguments]`, for `subprocess`.

    The program is a file, or "-m" and a module. It loads TensorFlow itself if its environment
    differs from that of the tests in what counts while libraries load.
    """
    return [sys.executable, "-I", "-S", __file__, *_server(), *map(str, arguments)]


def run_all(scripts, folder):
    """Runs each script in its own folder, one after another.

    Args:
      scripts: {name: text of a Python program}.
      folder: `pathlib.Path` to work in; each program's folder is `folder / name`.

    Returns:
      {name: (exit status, output)}.
    """
    results = {}
    for name, text in scripts.items():
        script = folder / name / "script.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            command(script),
            cwd=script.parent,
            env=os.environ | {"MPLBACKEND": "agg", "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        results[name] = done.returncode, done.stdout
    return results


def _loading(environment):
    """Returns the variables that count while libraries load, as text."""
    names = [n for n in sorted(environment) if n.startswith(_LOADING) and n not in _LATER]
    return json.dumps({name: environment[name] for name in names})


@functools.cache
def _server():
    """Starts the server of this process; returns its name and the variables that counted."""
    name = f"terngrad_tf_{secrets.token_hex(8)}"
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")
    # Ends when this process does, whose end of the pipe closes.
    server = subprocess.Popen(
        [sys.executable, __file__, name],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if not server.stdout.readline():
        raise RuntimeError(f"the server of forks ended with status {server.wait()}")
    return name, _loading(environment)


def _ask(name, loaded, *arguments):
    """The client: returns the exit status of the program, or ends by the same signal."""
    is_program = arguments[0] == "-m" or arguments[0].endswith(".py")
    if not is_program or _loading(os.environ) != loaded:
        os.execv(sys.executable, [sys.executable, *arguments])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_address(name))
    request = json.dumps([os.getcwd(), dict(os.environ), arguments]).encode()
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    socket.send_fds(connection, [_LENGTH.pack(len(request))], [0, 1, 2])
    connection.sendall(request)
    answer = connection.recv(100)
    status = int(answer) if answer else -signal.SIGKILL
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _address(name):
    """Returns the address of a server, which is not a file."""
    return f"\0{name}"


def _fork():
    with warnings.catch_warnings():
        # Threads of linear algebra, which are started again.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(name):
    """The server: returns in each fork, with the arguments of its program."""
    import keras  # noqa: F401 - for the forks
    import tensorflow  # noqa: F401

    sys.path.append(str(ROOT))
    # Collections of forks, one at their end, would copy all that is loaded.
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_address(name))
    listener.listen()
    # Nobody waits for forks that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while 0 not in (ready := select.select([listener, 0], [], [])[0]):
        if listener in ready:
            connection, _ = listener.accept()
            if _fork() == 0:
                listener.close()
                return _keep(connection)
            connection.close()
    os._exit(0)


def _keep(connection):
    """Starts a program and waits for it; returns its arguments in its own process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, files, *_ = socket.recv_fds(connection, _LENGTH.size, 3)
    request = b""
    while len(request) < _LENGTH.unpack(length)[0]:
        request += connection.recv(2**20)
    folder, environment, arguments = json.loads(request)
    program = _fork()
    if program == 0:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return arguments
    for file in (0, 1, 2, *files):
        os.close(file)
    ended = os.pidfd_open(program)
    while ended not in (ready := select.select([connection, ended], [], [])[0]):
        if ready:
            asked = connection.recv(1)
            os.kill(program, asked[0] if asked else signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):  # a client that was killed
        connection.sendall(str(status).encode())
    os._exit(0)


def _run(*arguments):
    """Runs a program as `python` with these arguments does."""
    import runpy

    import numpy as np

    # As in a new process; forks have Python's own by themselves.
    np.random.seed()
    sys.orig_argv[1:] = arguments
    if arguments[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[1:] = arguments[2:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        sys.argv[1:] = arguments[1:]
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(_ask(*sys.argv[1:]))
    _run(*_serve(sys.argv[1]))
