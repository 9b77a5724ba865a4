"""Photos of one's own: what `build_image_data` or `find_records` wrote to a folder."""

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
    program = "build_image_data"
