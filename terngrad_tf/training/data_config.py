"""Which records a program reads, and how."""

import contextlib

import slim_data
from terngrad_tf.training import checks
from terngrad_tf.training.config import REQUIRED, Config, configuration, option
from terngrad_tf.training.errors import UserError

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
        "Images decoded and augmented in parallel. Default: twice as many as the CPU has cores, "
        "where TernGrad had 4 a replica: images come in their order, and fewer leave cores idle.",
        checks.THREADS,
        identity=False,
        shared=False,
    )
    input_queue_memory_factor: int = option(
        16, "The shuffle buffer holds 1024 times as many records.", checks.BUFFER, before=16
    )
    skip_corrupt_records: bool = option(
        False,
        "Leave out records that cannot be read, after telling which. Default: they are an error.",
        identity=False,
    )
    # Of images of one's own; None for as many as labels.txt or the data set says.
    num_classes: int | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """(name, folder, part) of the data set."""
        # None is a name that is refused where it is looked for.
        return self.dataset_name, self.data_dir, self.subset  # pyright: ignore[reportReturnType]

    @property
    def info(self) -> slim_data.DatasetInfo:
        """What there is to know of the data set.

        Raises:
            slim_data.DataError: it is unknown, or its labels.txt is missing or wrong.
        """
        name, data_dir, _ = self.place
        return slim_data.info(name, data_dir, self.num_classes)

    def locate_corrupt_records(self) -> contextlib.AbstractContextManager[None]:
        """As `slim_data.locate_corrupt_records`, around what reads the records."""
        return slim_data.locate_corrupt_records(*self.place, self.num_classes)


@configuration
class TrainingDataConfig(DataConfig):
    """Records to train on, or what stands in for them."""

    num_classes: int | None = option(
        None,
        "Classes that your own images have, such as those that slim_data.build_image_data "
        "wrote, without the background. Default: as labels.txt beside the records or the data "
        "set says.",
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
        if self.benchmark_mode and self.num_classes is not None:
            raise UserError(
                "`num_classes` must not be given together with `benchmark_mode`. "
                f"Received: num_classes={self.num_classes!r}"
            )
