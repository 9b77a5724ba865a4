"""Compares time and memory of the principal components of weight snapshots with usual methods.

    python -m benchmarks.subspace.pca --weights=2500000,25000000 --json=pca.json

The benchmark writes snapshots of a random walk with shrinking steps once for each size. Then every
method runs in its own process: ours (`Subspace.fit`), scikit-learn's PCA with each solver that
supports this number of features, and SciPy's SVD of the centred matrix, as in MindSpore Boost's
first release. Time counts from the files to the components. Peak memory is the increase of the
process's largest resident set; "beyond the result" is this increase without the components and the
mean in float32. Angles are the largest principal angle to components computed in float64 by a QR
decomposition of the snapshots, which squares nothing.

scikit-learn's full SVD needs 20 GB for 25 million weights: choose --methods that fit the memory.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np
import scipy.linalg
import sklearn.decomposition
from absl import app, flags

from benchmarks.lib import figures, markdown, program
from terngrad_tf.subspace import Subspace, save_snapshot
from terngrad_tf.subspace.weights import snapshot_files

_METHODS = (
    "ours",
    "scikit-learn full",
    "scikit-learn randomized",
    "scikit-learn arpack",
    "scipy svd",
)
_WEIGHTS = flags.DEFINE_list("weights", ["2500000"], "Numbers of weights, rounded to whole layers.")
_SNAPSHOTS = flags.DEFINE_integer("snapshots", 40, "Number of snapshots.", lower_bound=2)
_COMPONENTS = flags.DEFINE_integer("components", 32, "Number of components.", lower_bound=1)
_METHOD_LIST = flags.DEFINE_list("methods", list(_METHODS), f"Methods, in {', '.join(_METHODS)}.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Runs of each method; medians count.", lower_bound=1)
_FOLDER = flags.DEFINE_string("folder", None, "Folder of the snapshots. Default: temporary files.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
_RUN = flags.DEFINE_string("run", None, "Used for the processes of the methods.")

_LAYER = 500_000
_PIECE = 100_000


def write_snapshots(folder, num_weights, num_snapshots):
    """Writes a random walk with shrinking steps: each step has a new direction."""
    num_layers = max(1, round(num_weights / _LAYER))
    inputs = keras.Input((1,))
    outputs = [keras.layers.Dense(_LAYER, use_bias=False)(inputs) for _ in range(num_layers)]
    model = keras.Model(inputs, outputs)
    generator = np.random.default_rng(0)
    for step in range(num_snapshots):
        for variable in model.trainable_variables:
            move = generator.standard_normal(_LAYER, np.float32)[None] * 0.9**step
            variable.assign(variable.numpy() + move)
        save_snapshot(model, folder, step)


def matrix_of(folder):
    """Returns all snapshots as one float32 matrix, the input of the other methods."""
    snapshots = snapshot_files.open_snapshots(folder)
    return np.stack([np.concatenate([t.ravel() for t in s.read()]) for s in snapshots])


def components_of(method, folder, k):
    """Runs one method from files to components."""
    if method == "ours":
        return Subspace.fit(folder, k).components
    matrix = matrix_of(folder)
    if method == "scipy svd":
        matrix -= matrix.mean(0)
        return scipy.linalg.svd(matrix, full_matrices=False)[2][:k]
    solver = method.split()[1]
    return sklearn.decomposition.PCA(k, svd_solver=solver, random_state=0).fit(matrix).components_


def largest_angle(folder, components):
    """Returns the largest principal angle to the components in float64, in radians."""
    snapshots = snapshot_files.open_snapshots(folder)
    length, k = components.shape[1], components.shape[0]

    def pieces():
        for start in range(0, length, _PIECE):
            piece = np.empty((len(snapshots), min(_PIECE, length - start)), np.float32)
            for snapshot, row in zip(snapshots, piece, strict=True):
                snapshot.read_range(start, row)
            piece = piece.astype(np.float64)
            yield start, piece - piece.mean(0)

    triangle = np.zeros((0, len(snapshots)))
    for _, piece in pieces():
        triangle = np.linalg.qr(np.concatenate([triangle, piece.T]), mode="r")
    _, values, rows = np.linalg.svd(triangle)
    weights = rows[:k] / values[:k, None]
    overlap = np.zeros((k, k))
    for start, piece in pieces():
        overlap += components[:, start : start + _PIECE].astype(np.float64) @ (weights @ piece).T
    outside = np.zeros((k, k))
    for start, piece in pieces():
        rest = components[:, start : start + _PIECE].astype(np.float64) - overlap @ weights @ piece
        outside += rest @ rest.T
    return float(np.arcsin(min(1.0, np.sqrt(np.linalg.eigvalsh(outside)[-1]))))


def run_method(method, folder, k):
    """Runs one method in this process; prints its figures as a line of JSON."""
    kib = 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib
    start = time.perf_counter()
    components = components_of(method, folder, k)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kib - before
    result = 4 * (components.shape[0] + 1) * components.shape[1]
    print(
        json.dumps(
            {
                "method": method,
                "weights": components.shape[1],
                "seconds": seconds,
                "peak_bytes": peak,
                "beyond_result_bytes": peak - result,
                "largest_angle": largest_angle(folder, components),
            }
        )
    )


def measure(folder):
    """Returns medians over interleaved rounds, one row per method."""
    rows = {method: [] for method in _METHOD_LIST.value}
    for _ in range(_ROUNDS.value):
        for method, results in rows.items():
            command = [
                sys.executable,
                "-m",
                "benchmarks.subspace.pca",
                f"--run={method}",
                f"--folder={folder}",
                f"--components={_COMPONENTS.value}",
            ]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results.append(json.loads(output.splitlines()[-1]))
    medians = []
    for method, results in rows.items():
        numbers = [name for name in results[0] if name != "method"]
        median = {name: float(np.median([r[name] for r in results])) for name in numbers}
        medians.append({"method": method, **median})
    return medians


def table(rows):
    """Returns the rows as a Markdown table."""
    lines = []
    for row in rows:
        same = [r for r in rows if r["weights"] == row["weights"] and r["method"] == "ours"]
        times = f"{row['seconds'] / same[0]['seconds']:.1f}" if same else "-"
        cells = [f"{row['weights']:,.0f}", row["method"], f"{row['seconds']:.1f}", times]
        cells += [f"{row[name] / 1e9:.2f}" for name in ("peak_bytes", "beyond_result_bytes")]
        lines.append([*cells, f"{row['largest_angle']:.1e}"])
    titles = "weights | method | seconds | times ours | peak GB | beyond the result GB | angle"
    return markdown.table(titles, lines)


def main():
    """Writes snapshots, runs every method and prints the table."""
    unknown = [m for m in _METHOD_LIST.value if m not in _METHODS]
    if unknown:
        raise app.UsageError(f"`methods` must be in {', '.join(_METHODS)}. Received: {unknown}")
    if _RUN.value:
        run_method(_RUN.value, _FOLDER.value, _COMPONENTS.value)
        return
    rows = []
    for num_weights in _WEIGHTS.value:
        with tempfile.TemporaryDirectory(dir=_FOLDER.value) as folder:
            write_snapshots(folder, int(num_weights), _SNAPSHOTS.value)
            rows += measure(folder)
    print(
        f"{_SNAPSHOTS.value} snapshots, {_COMPONENTS.value} components, median of {_ROUNDS.value}"
        f" rounds, {os.cpu_count()} cores"
    )
    print(table(rows))
    if _JSON.value:
        figures.write_json(_JSON.value, {"rows": rows})


if __name__ == "__main__":
    program.run(main)
