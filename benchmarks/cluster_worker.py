"""What every worker of the cluster benchmark does: runs the steps that its input asks for."""

import json
import pathlib
import sys
import time


def received_bytes(interface):
    """Bytes that a network interface has received."""
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_bytes").read_text())


def serve(interface, step_of_mode):
    """Answers each line "MODE STEPS" with a line of JSON: seconds and received bytes a step.

    Args:
        interface: the network interface to watch.
        step_of_mode: dict of name to a function that runs one step to its end.
    """
    print(json.dumps({"ready": sorted(step_of_mode)}), flush=True)
    for line in sys.stdin:
        mode, count = line.split()
        step, before, start = step_of_mode[mode], received_bytes(interface), time.perf_counter()
        for _ in range(int(count)):
            step()
        seconds = time.perf_counter() - start
        # Everything that was sent for these steps has arrived when all hosts pass.
        time.sleep(0.05)
        received = received_bytes(interface) - before
        answer = {"seconds": seconds / int(count), "received": received / int(count)}
        print(json.dumps(answer), flush=True)
