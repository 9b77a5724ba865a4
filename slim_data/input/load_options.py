"""What `load` takes beside the place of a data set."""

import dataclasses

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """How `load` reads a data set, beside its place and the sizes of batches and images.

    In a cluster each process can take its own part of the examples: give `num_input_pipelines`
    and `input_pipeline_id`, and the batch size of one process. The parts are disjoint and make
    up the whole in each epoch. They are whole files where the files divide evenly or there are
    ten for each process, and every n-th record otherwise. The dataset then tells
    `tf.distribute` to shard no further (AutoShardPolicy.OFF). With one pipeline it tells it to
    shard by batches (AutoShardPolicy.DATA), for the batch size of all processes together.

    Styles of preprocessing, that of a data set by default first:

    | data sets | style | in training | otherwise | values |
    |---|---|---|---|---|
    | digits, mnist, fashion_mnist, idx | lenet | central part | the same | -1 to 1 |
    | cifar10 | cifarnet | random part, mirrored, contrast | central part | standardized |
    | | resnet | shifted by up to 4 pixels, mirrored | central part | normalized |
    | imagenet, flowers | inception | random part, mirrored, colours | central 87.5 % | -1 to 1 |
    | and folder | alexnet | random part of 256 x 256, mirrored | its centre | less the mean |
    | | vgg | random part of a random size, mirrored | centre of size 256 | less the mean |
    | | resnet | random part resized, mirrored | centre of size 256 | normalized |

    Each has a module in `slim_data/preprocessing` (`cifar_resnet.py` for CIFAR-10's resnet) that
    gives the formulas. Resizing is described in its `resizing.py`.

    Args:
        preprocessing: style of preprocessing, see above; the data set's default if None.
        num_readers: files read at once, in turns; with one, files are read one after the other.
        shuffle_buffer: examples (not decoded) to draw from in training.
        seed: int, of the order in training.
        start_step: batches to leave out at the beginning, as if they had been consumed.
        drop_remainder: whether to drop a last, smaller batch; `repeat`, which has none, by default.
        repeat: whether to start over at the end of the examples. Default False.
        num_input_pipelines: number of processes that divide the examples among them.
        input_pipeline_id: number of this process, from 0.
        rows: (first, end) of the rows of each batch to give, where processes make batches together:
            all read the same order of examples, and decode their own rows alone, so that a batch
            holds the same examples however many processes share it. A last, smaller batch must be
            dropped. Default: all rows.
        num_parallel_calls: threads that decode; TensorFlow chooses by default.
        skip_corrupt_records: whether to leave out records that cannot be read. All are read once
            beforehand to find them (see `corrupt_records`), so that order, position and number of
            examples are as exact as without. Each is logged as a warning, and their number.
        num_classes: how many classes images of one's own have, as for `slim_data.info`.

    Raises:
        DataError: a value is out of range.
    """

    preprocessing: str | None = None
    num_readers: int = 4
    shuffle_buffer: int = 16 * 1024
    seed: int = 1
    start_step: int = 0
    drop_remainder: bool | None = None
    repeat: bool = False
    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    rows: tuple[int, int] | None = None
    num_parallel_calls: int | None = None
    skip_corrupt_records: bool = False
    num_classes: int | None = None

    def __post_init__(self) -> None:
        check_at_least(
            1,
            num_readers=self.num_readers,
            shuffle_buffer=self.shuffle_buffer,
            num_input_pipelines=self.num_input_pipelines,
        )
        if self.num_parallel_calls is not None:
            check_at_least(1, num_parallel_calls=self.num_parallel_calls)
        check_at_least(-(2**63), seed=self.seed)
        check_at_least(0, start_step=self.start_step, input_pipeline_id=self.input_pipeline_id)
        if self.input_pipeline_id >= self.num_input_pipelines:
            raise DataError(
                f"`input_pipeline_id` must be less than num_input_pipelines="
                f"{self.num_input_pipelines}. Received: input_pipeline_id={self.input_pipeline_id}"
            )
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise DataError(f"`rows` must be (first, end), not empty. Received: rows={self.rows}")
        if self.rows is not None and not self.drops_remainder:
            raise DataError(
                f"`rows` must not be given without `drop_remainder`. Received: rows={self.rows}"
            )

    @property
    def drops_remainder(self) -> bool:
        """Whether a last, smaller batch is dropped; by default where there is none."""
        return self.repeat if self.drop_remainder is None else self.drop_remainder
