"""Loop of every worker of the cluster benchmark: runs the steps that its input requests."""

import json
import pathlib
import sys
import time


def received_bytes(interface):
    """Returns the bytes that a network interface has received."""
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/rx_bytes").read_text())


def serve(interface, step_of_mode):
    """Answers each line "MODE STEPS" with a line of JSON: the cost of the steps.

    The keys are `seconds`, `cpu_seconds` of all threads of the process, and `received` bytes.

    Args:
        interface: the network interface to watch.
        step_of_mode: dict from name to a function that runs one step to its end, or as many as its
            attribute `num_steps` says.
    """
    print(json.dumps({"ready": sorted(step_of_mode)}), flush=True)
    for line in sys.stdin:
        mode, count = line.split()
        step, before = step_of_mode[mode], received_bytes(interface)
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(int(count)):
            step()
        spent = {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu_start,
        }
        # When all hosts pass, all data has arrived.
        time.sleep(0.05)
        spent["received"] = received_bytes(interface) - before
        num_steps = int(count) * getattr(step, "num_steps", 1)
        print(json.dumps({name: value / num_steps for name, value in spent.items()}), flush=True)
