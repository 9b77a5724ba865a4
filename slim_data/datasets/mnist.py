"""MNIST from its official files.

Source: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits.
"""

from slim_data.datasets.builder import DatasetInfo
from slim_data.datasets.sources.idx_files import IdxBuilder, official_files
from slim_data.datasets.sources.labels_file import DIGITS
from slim_data.preprocessing import styles


class Mnist(IdxBuilder):
    """70,000 handwritten digits."""

    info = DatasetInfo(
        name="mnist",
        title="MNIST",
        labels=DIGITS,
        channels=1,
        image_size=28,
        splits={"train": 60000, "test": 10000},
        preprocessings=styles.GREY,
    )
    downloads = official_files(
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
        ),
        sizes=(9912422, 28881, 1648877, 4542),
        checksums=(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
    tfds_name = "mnist"
