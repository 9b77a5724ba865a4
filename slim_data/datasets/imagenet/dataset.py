"""ImageNet (ILSVRC 2012) for training.

Source: O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
"""

import os

from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.preprocessing import styles


class ImageNet(DatasetBuilder):
    """1.3 million photos of 1,000 classes, written by `build_imagenet_data`."""

    info = DatasetInfo(
        name="imagenet",
        title="ImageNet",
        labels=("",) * 1000,
        channels=3,
        image_size=None,
        splits={"train": 1281167, "validation": 50000},
        preprocessings=styles.PHOTO,
        label_offset=1,
    )
    program = "build_imagenet_data"
    takes_own_images = True

    @classmethod
    def command(cls, data_dir: str | os.PathLike) -> str:
        """See the base class."""
        return (
            f"python -m slim_data.find_records {data_dir} (of train/<class>/* and val/<class>/*) "
            f"or with: bash scripts/download_and_preprocess_imagenet.sh {data_dir}"
        )
