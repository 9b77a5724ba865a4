"""Runs of the fidelity study."""

import dataclasses
import math

FLOAT = "float"
# Ways to exchange gradients: options of the strategy.
_PAPER = {
    **{f"correlated, clip {clip:g}": {"clip_factor": clip} for clip in (0.0, 2.5)},
    "correlated, auto": {"clip_factor": "auto"},
    "clip 2.5, sum rounded": {"wire": "bidirectional"},
    **{
        f"{bits:g} bits": {"clip_factor": "auto", "bits_per_element": bits}
        for bits in (0.3, 0.1, 0.05)
    },
    **{f"{bits}-bit, auto": {"grad_bits": bits, "clip_factor": "auto"} for bits in (3, 4, 8)},
    "4-bit, clip 2.5": {"grad_bits": 4, "clip_factor": 2.5},
}
GRADIENTS = {
    FLOAT: {"grad_bits": 32},
    "rotated": {},
    "rotated, 4-bit": {"grad_bits": 4},
    "rotated, ternary alone": {"alone": True},
    **{name: {"rotate": False, **options} for name, options in _PAPER.items()},
}
# Ways whose bytes are compared.
OF_BUDGETS = (FLOAT, "correlated, clip 2.5", "correlated, clip 0", "correlated, auto")
OF_BUDGETS += tuple(way for way in GRADIENTS if way.endswith(" bits"))
# Default gradients of the tables with swept rates, and of workers.
SWEPT = (FLOAT, "correlated, clip 2.5", "correlated, clip 0")
OF_WORKERS = (FLOAT, *(way for way in _PAPER if "bit" not in way))
# Rates of the sweep.
OPTIMIZERS = {
    "SGD, momentum 0.9": (0.01, 0.03, 0.1, 0.3),
    "Adam": (0.001, 0.003, 0.01, 0.03),
    "AbsAdam": (0.001, 0.003, 0.01, 0.03),
}
# Networks, and the rate of SGD with momentum for the tables of workers.
NETS = {"small_cnn": 0.05, "lenet": 0.02, "resnet_20": 0.1}
# Networks whose mean of float gradients depends on the number of workers: each normalizes its own
# images.
WITH_BATCH_NORM = {"resnet_20"}
# Networks with swept rates.
KINDS = ("vit", "text_transformer", "embeddings", "embeddings_dense")
# Networks of `source_text`; the others use Fashion-MNIST.
TEXT_NETS = {"text_transformer", "embeddings", "embeddings_dense"}
# Images per step, over all workers.
BATCHES = (32, 64, 256, 1024)
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
OF_PRECISIONS = ("SGD, momentum 0.9", "Adam")
TUNING_SEED = 0


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run.

    Args:
        net: one of `NETS` or `KINDS`.
        optimizer: one of `OPTIMIZERS`.
        gradients: one of `GRADIENTS`.
        num_nodes: replicas.
        batch_size: images per step, over all replicas.
        images: number of training images, the first of the data set.
        rate: learning rate of the first step; falls along half a cosine to 0.
        precision: Keras' dtype policy, from `PRECISIONS`.
    """

    net: str
    optimizer: str
    gradients: str
    num_nodes: int
    batch_size: int
    images: int
    epochs: int
    rate: float
    seed: int
    precision: str = PRECISIONS[0]

    @property
    def shape(self):
        """The run without rate and seed: runs of one shape share a compiled function."""
        return dataclasses.replace(self, rate=0.0, seed=0)


def sweep(
    images, epochs, optimizer, gradients, net="small_cnn", batch=256, precision=PRECISIONS[0]
):
    """Returns the runs that choose rates: each way at each rate of an optimizer, with one seed."""
    return [
        Run(net, optimizer, way, 8, batch, images, epochs, rate, TUNING_SEED, precision)
        for way in gradients
        for rate in OPTIMIZERS[optimizer]
    ]


def tuned(found, seeds):
    """Returns the runs at each way's best rate, which has the lowest loss on held-out images.

    Args:
        found: the sweep, {`Run`: row}.
    """
    best = {}
    for run in sorted(found, key=lambda run: found[run]["held_out_loss"] or math.inf):
        best.setdefault(run.shape, run)
    return [dataclasses.replace(run, seed=seed) for run in best.values() for seed in seeds]


def workers(images, epochs, nets, counts, gradients, seeds):
    """Returns runs by number of workers; one of float gradients if workers do not matter."""
    return [
        Run(net, "SGD, momentum 0.9", way, count, 128, images, epochs, NETS[net], seed)
        for net in nets
        for way in gradients
        for count in (counts if way != FLOAT or net in WITH_BATCH_NORM else [1])
        for seed in seeds
    ]
