"""Text from installed packages, for benchmarks: snippets of source, labelled by package.

Nothing is downloaded; another release of a package has other snippets.
"""

import hashlib
import importlib.util
import pathlib

import numpy as np

PACKAGES = (
    *("keras", "matplotlib", "numpy", "pygments"),
    *("scipy", "sklearn", "tensorboard", "tensorflow"),
)
LENGTH = 128
# Tenths of the files for training; the others are for testing.
_TRAINING_TENTHS = 7


def load(num_training, num_test):
    """Reads snippets of the packages' Python files, the same number per package.

    The numbers must be multiples of the number of `PACKAGES`.

    Returns:
        {"train": (bytes, labels), "test": ...}: int32 [n, LENGTH] in 0..255, and int32 [n], of
        different files, always in the same order.
    """
    counts = {"train": num_training // len(PACKAGES), "test": num_test // len(PACKAGES)}
    found = {"train": [], "test": []}
    for name in PACKAGES:
        for split, snippets in _snippets(name).items():
            if len(snippets) < counts[split]:
                raise ValueError(f"{name} has {len(snippets)} snippets, of {counts[split]} needed")
            chosen = np.random.default_rng(0).permutation(len(snippets))[: counts[split]]
            found[split].append(snippets[chosen])
    result = {}
    for split, of_packages in found.items():
        labels = np.repeat(np.arange(len(PACKAGES), dtype="int32"), counts[split])
        order = np.random.default_rng(1).permutation(len(labels))
        result[split] = np.concatenate(of_packages)[order].astype("int32"), labels[order]
    return result


def _snippets(package):
    """Returns {"train", "test"}: uint8 [n, LENGTH] of a package."""
    folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
    found = {"train": [], "test": []}
    for path in sorted(folder.rglob("*.py")):
        name = str(path.relative_to(folder))
        tenth = hashlib.sha256(name.encode()).digest()[0] * 10 // 256
        text = np.frombuffer(path.read_bytes(), np.uint8)
        whole = text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH)
        # The head of a file names its package.
        found["train" if tenth < _TRAINING_TENTHS else "test"].append(whole[4:])
    return {split: np.concatenate(of_files) for split, of_files in found.items()}
