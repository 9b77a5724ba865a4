"""The records that a program reads."""

import contextlib

import slim_data
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, option

DATASETS = ", ".join(sorted(slim_data.DATASETS))


@configuration
class DataConfig(Config):
    """Records on disk and how they are read."""

    data_dir: str = option(
        REQUIRED, "Folder with the TFRecords.", checks.path, identity=False, shared=False
    )
    dataset_name: str | None = option(None, f"Data set: {DATASETS}.")
    subset: str = option("train", "Part of the data set to train on.")
    batch_size: int = option(
        32, "Images per step over all replicas together; divisible by --num_nodes.", checks.BATCH
    )
    num_readers: int = option(4, "Files read in parallel.", checks.THREADS, before=4)
    num_preprocess_threads: int | None = option(
        None,
        "Images decoded and augmented in parallel. Default: twice the CPU's cores (TernGrad: 4 per "
        "replica), since images come in order and fewer leave cores idle.",
        checks.THREADS,
        identity=False,
        shared=False,
    )
    input_queue_memory_factor: int = option(
        16, "The shuffle buffer holds 1024 times this number of records.", checks.BUFFER, before=16
    )
    skip_corrupt_records: bool = option(
        False,
        "Skip unreadable records and log them. Default: an unreadable record is an error.",
        identity=False,
    )
    # For own images. None: the number of labels.txt or of the data set.
    num_classes: int | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """(name, folder, part) of the data set."""
        # `slim_data` refuses None as an unknown name.
        return self.dataset_name, self.data_dir, self.subset  # pyright: ignore[reportReturnType]

    @property
    def info(self) -> slim_data.DatasetInfo:
        """Returns the description of the data set.

        Raises:
            slim_data.DataError: the data set is unknown, or its labels.txt is missing or wrong.
        """
        name, data_dir, _ = self.place
        return slim_data.info(name, data_dir, self.num_classes)

    def locate_corrupt_records(self) -> contextlib.AbstractContextManager[None]:
        """Like `slim_data.locate_corrupt_records`; enter it around code that reads records."""
        return slim_data.locate_corrupt_records(*self.place, self.num_classes)


@configuration
class TrainingDataConfig(DataConfig):
    """Records to train on, or their replacement."""

    num_classes: int | None = option(
        None,
        "Number of classes of your own images, such as from slim_data.build_image_data, without "
        "the background. Default: the number of labels.txt beside the records, or of the data "
        "set.",
        checks.COUNT,
        before=None,
    )
    benchmark_mode: bool = option(
        False,
        "Train on grey images with random labels, without reading --data_dir.",
        before=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.benchmark_mode:
            self.refuse_given(("num_classes",), "together with `benchmark_mode`")
