"""Measurements in rounds, so that other work of the machine meets all of them alike."""

import json
import os
import subprocess
import sys


def in_processes(module, cells, rounds, *options):
    """Runs `python -m benchmarks.MODULE --cell=CELL` for all cells, in rounds.

    Args:
        module: prints a JSON line per cell.
        cells: tuples; `--cell` joins each with commas.
        options: further flags.

    Returns:
        {cell: the lines' contents, one per round}.
    """
    results = {cell: [] for cell in cells}
    for _ in range(rounds):
        for cell, found in results.items():
            name = ",".join(map(str, cell))
            command = [sys.executable, "-m", f"benchmarks.{module}", f"--cell={name}", *options]
            environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
            result = subprocess.run(command, env=environment, capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr[-3000:]}")
            found.append(json.loads(result.stdout.splitlines()[-1]))
    return results


def in_turn(rounds):
    """Yields the modes of {mode: number of rounds}, round by round.

    Each round begins with the next mode: leftovers in the links' queues must meet all alike.
    """
    modes = list(rounds)
    for number in range(max(rounds.values())):
        first = number % len(modes)
        yield from (m for m in modes[first:] + modes[:first] if number < rounds[m])
