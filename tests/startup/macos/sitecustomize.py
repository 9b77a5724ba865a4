"""Hides from Python programs what Linux has and macOS lacks.

Python imports a module of this name at its start, if PYTHONPATH has its folder.
"""

import errno
import os
import select
import signal
import socket
import sys

_LACKING = {
    os: "memfd_create pidfd_open posix_fadvise sched_getaffinity sched_setaffinity",
    select: "POLLRDHUP epoll",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "SO_BINDTODEVICE TCP_KEEPIDLE TCP_USER_TIMEOUT",
}


def _hide(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
    if event == "ctypes.dlsym" and arguments[1] == "prctl":
        raise AttributeError("no symbol prctl")


for module, names in _LACKING.items():
    for name in names.split():
        delattr(module, name)
sys.addaudithook(_hide)
