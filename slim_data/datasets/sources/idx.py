"""Own data sets in MNIST's file format, with given class names."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from slim_data.common.errors import DataError
from slim_data.datasets.builder import DatasetInfo
from slim_data.datasets.sources.idx_files import NAMES, SIDE, IdxBuilder
from slim_data.datasets.sources.labels_file import check_labels
from slim_data.preprocessing import styles

_MAX_LABELS = 256  # a label is a byte


class Idx(IdxBuilder):
    """Grey images of 28 x 28 pixels from four files named like MNIST's.

    A prefix may precede the names, as in `emnist-letters-train-images-idx3-ubyte.gz`, and `test`
    may replace `t10k`.

    Args:
        labels: names of the classes, in the order of their numbers from 0.
    """

    info = DatasetInfo(
        name="idx",
        title="idx",
        labels=(),
        channels=1,
        image_size=SIDE,
        splits={"train": None, "test": None},
        preprocessings=styles.GREY,
    )
    takes_labels = True

    def __init__(self, raw_dir: str | os.PathLike, labels: Sequence[str]):
        super().__init__(raw_dir)
        is_list = not isinstance(labels, str) and all(isinstance(n, str) for n in labels or ())
        if not is_list or not labels or len(labels) > _MAX_LABELS:
            raise DataError(
                f"`labels` must be a list of the names of the 1 to {_MAX_LABELS} classes. "
                f"Received: labels={labels!r}"
            )
        check_labels(list(labels))
        self.info = dataclasses.replace(self.info, labels=tuple(labels))

    def fingerprint(self) -> dict[str, Any]:
        """See the base class; also depends on the names of the classes."""
        return {**super().fingerprint(), "labels": list(self.info.labels)}

    def raw_paths(self) -> list[str]:
        """See the base class."""
        names = sorted(os.listdir(self.raw_dir)) if os.path.isdir(self.raw_dir) else []
        paths = []
        for wanted in NAMES:
            endings = wanted, wanted.replace("t10k", "test")
            found = [name for name in names if name.endswith(endings)]
            if len(found) != 1:
                raise DataError(
                    f"`raw_dir` must hold one file {' or '.join(dict.fromkeys(endings))}. "
                    f"Received: raw_dir={str(self.raw_dir)!r} with {len(found)}"
                )
            paths.append(os.path.join(self.raw_dir, found[0]))
        return paths
