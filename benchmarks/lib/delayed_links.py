"""Links with a delay between hosts of this machine, for kernels without netem.

Each host's link is a TUN device. A separate process, `python delayed_links.py SECONDS DESCRIPTOR
...`, forwards its packets to the others after the delay. Needs Linux, root and /dev/net/tun.
"""

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

# From linux/if_tun.h: packets without an additional header.
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_MAX_PACKET = 1 << 16
_IPV4 = 4


@contextlib.contextmanager
def up(interfaces, round_trip):
    """Creates interfaces of linked hosts; callers may move them to namespaces.

    Args:
        interfaces: names. The i-th of N gets the packets to IPv4 addresses that end in i + 1.
        round_trip: seconds from one host to another and back.

    Yields:
        Function that delays all packets for seconds from its call on; none is lost.

    Raises:
        OSError: /dev/net/tun is missing or not permitted.
    """
    with contextlib.ExitStack() as stack:
        devices = []
        for interface in interfaces:
            devices.append(os.open("/dev/net/tun", os.O_RDWR))
            stack.callback(os.close, devices[-1])
            kind = struct.pack("16sH", interface.encode(), _IFF_TUN | _IFF_NO_PI)
            fcntl.ioctl(devices[-1], _TUNSETIFF, kind)
        forwarder = stack.enter_context(
            subprocess.Popen(
                [sys.executable, __file__, str(round_trip / 2), *map(str, devices)],
                stdin=subprocess.PIPE,
                pass_fds=devices,
                text=True,
            )
        )

        def stall(seconds):
            forwarder.stdin.write(f"{seconds}\n")
            forwarder.stdin.flush()

        yield stall


def forward(devices, delay, commands):
    """Forwards packets from host to host until `commands` ends.

    Args:
        devices: file descriptors of the hosts' TUN devices.
        delay: seconds that a packet takes.
        commands: text file; a line delays all packets by a number of seconds.
    """
    on_the_way = collections.deque()
    stalled_until = 0.0
    while True:
        wait = None
        if on_the_way:
            wait = max(0.0, max(on_the_way[0][0], stalled_until) - time.monotonic())
        ready, _, _ = select.select([*devices, commands], [], [], wait)
        now = time.monotonic()
        for source in ready:
            if source is commands:
                if not (line := commands.readline()):
                    return
                stalled_until = now + float(line)
                continue
            packet = os.read(source, _MAX_PACKET)
            # The last number of an IPv4 address; other packets search for neighbours.
            host = packet[19] - 1 if packet[0] >> 4 == _IPV4 else -1
            if 0 <= host < len(devices):
                on_the_way.append((now + delay, devices[host], packet))
        while on_the_way and max(on_the_way[0][0], stalled_until) <= now:
            _, target, packet = on_the_way.popleft()
            # The interface may be going down.
            with contextlib.suppress(OSError):
                os.write(target, packet)


if __name__ == "__main__":
    forward([int(device) for device in sys.argv[2:]], float(sys.argv[1]), sys.stdin)
