"""Cells of a table, each measured by a process of its own, in rounds."""

import json
import os
import subprocess
import sys


def measure(module, cells, rounds, *options):
    """Runs `python -m benchmarks.MODULE --cell=CELL` for all cells, one round after the other.

    Args:
        module: a module of `benchmarks`, which prints a JSON line for a cell.
        cells: list of tuples, the cells, given with commas.
        rounds: processes of each.
        options: further flags.

    Returns:
        Dict of cells to lists of what the line held, one a round.

    Raises:
        RuntimeError: a process failed.
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
