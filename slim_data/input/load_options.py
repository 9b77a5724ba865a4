"""Options of `load`."""

import dataclasses

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Options of `load`, apart from the data set and the sizes of batches and images.

    In a cluster, each process can read its own part: pass `num_input_pipelines`,
    `input_pipeline_id` and the batch size of one process. The parts are disjoint and complete in
    each epoch: whole files if these divide evenly or there are ten per process, otherwise every
    n-th record. `tf.distribute` then does not shard (AutoShardPolicy.OFF). With one pipeline, it
    shards by batches (AutoShardPolicy.DATA), for the batch size of all processes together.

    Styles of preprocessing, the default first:

    | data sets | style | in training | otherwise | values |
    |---|---|---|---|---|
    | digits, mnist, fashion_mnist, idx | lenet | central part | the same | -1 to 1 |
    | cifar10 | cifarnet | random part, mirrored, contrast | central part | standardized |
    | | resnet | shifted by up to 4 pixels, mirrored | central part | normalized |
    | imagenet, flowers | inception | random part, mirrored, colours | central 87.5 % | -1 to 1 |
    | and folder | alexnet | random part of 256 x 256, mirrored | its centre | less the mean |
    | | vgg | random part of a random size, mirrored | centre of size 256 | less the mean |
    | | resnet | random part resized, mirrored | centre of size 256 | normalized |

    Each style's module in `slim_data/preprocessing` gives the formulas (`cifar_resnet.py` for
    CIFAR-10's resnet).

    Args:
        preprocessing: style, see above. Default: the data set's first.
        num_readers: number of files read concurrently, in turns.
        shuffle_buffer: number of (encoded) examples to draw from in training.
        seed: seed of the order in training.
        start_step: number of batches to skip, as if they had been consumed.
        drop_remainder: whether to drop a last, smaller batch. Default: as `repeat`.
        repeat: whether to start over at the end of the examples.
        num_input_pipelines: number of processes that divide the examples.
        input_pipeline_id: number of this process, from 0.
        rows: (first, end) of the rows kept from each batch, for processes that make batches
            together: all read the same order, so a batch holds the same examples for any number of
            processes. Requires dropping a last, smaller batch. Default: all.
        num_parallel_calls: number of decoding threads. Default: TensorFlow's choice.
        skip_corrupt_records: whether to skip unreadable records, after reading all once to find
            them (see `corrupt_records`), which keeps order and number of examples exact. Logs a
            warning for each.
        num_classes: number of classes of own images, see `slim_data.info`.

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
        """True if a last, smaller batch is dropped; by default `repeat`, which has none."""
        return self.repeat if self.drop_remainder is None else self.drop_remainder
