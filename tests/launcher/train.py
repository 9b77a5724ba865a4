"""Program that the tests of `terngrad run` start: prints its task, then acts on its argument."""

import json
import os
import pathlib
import signal
import sys
import time


def wait():
    time.sleep(100)


task = json.loads(os.environ["TF_CONFIG"])
rank, count = task["task"]["index"], len(task["cluster"]["worker"])
print(f"worker {rank} of {count}", *sys.argv[1:], flush=True)
print(f"problem {rank}", file=sys.stderr, flush=True)
what, *rest = sys.argv[1:] or ["end"]
if what == "fail":
    if rank == 1:
        raise ValueError("bad luck")
    wait()
elif what == "fill":
    if rank == 1:
        pathlib.Path(rest[0], "checkpoint").write_bytes(bytes(4 << 20))
    wait()
elif what == "told":  # worker 1 reports the failure of worker 0 before worker 0 exits
    if rank == 1:
        sys.exit(3)
    time.sleep(1)
    sys.exit("disk is full")
elif what == "kill_once":
    mark = pathlib.Path(rest[0])
    if rank == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if not mark.exists():
        wait()
elif what == "save":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("ready", flush=True)
    wait()
elif what == "save_slowly":
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append("told"))
    print("ready", flush=True)
    while not pathlib.Path(rest[0]).exists():
        print(*told or ["works"], flush=True)
        time.sleep(0.1)
    sys.exit(75)
elif what == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    wait()
elif what == "wait":
    print("ready", flush=True)
    wait()
elif what == "environment":
    print(*(f"{name}={os.environ.get(name)}" for name in rest), flush=True)
elif what == "elastic":  # ends once all machines are back after one was lost
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    mark = pathlib.Path(rest[0])
    if count == 1:
        mark.touch()
        wait()
    if not mark.exists():
        wait()
elif what == "no_line_end":
    sys.stdout.write("x" * 200_000)
