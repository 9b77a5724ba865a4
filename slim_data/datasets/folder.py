"""Own images: what `convert_image_folder`, `build_image_data` or `find_records` wrote."""

import os

from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.preprocessing import styles


class Folder(DatasetBuilder):
    """Images of any size; the folder's labels.txt names the classes."""

    info = DatasetInfo(
        name="folder",
        title="folder",
        labels=(),
        channels=3,
        image_size=None,
        splits={"train": None, "validation": None},
        preprocessings=styles.PHOTO,
    )
    program = "convert_image_folder"

    @classmethod
    def command(cls, data_dir: str | os.PathLike) -> str:
        """See the base class."""
        return f"python -m slim_data.{cls.program} DIR {data_dir}"
