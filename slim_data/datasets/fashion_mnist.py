"""Fashion-MNIST from its official files, whose format and names are MNIST's.

Source: H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking
Machine Learning Algorithms, 2017.
"""

from slim_data.datasets.builder import DatasetInfo
from slim_data.datasets.sources.idx_files import NAMES, IdxBuilder, official_files
from slim_data.preprocessing import styles

# Debian's package dataset-fashion-mnist holds the archives without file times and names.
_DEBIAN = (
    "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
)


class FashionMnist(IdxBuilder):
    """70,000 photographs of clothes."""

    info = DatasetInfo(
        name="fashion_mnist",
        title="Fashion-MNIST",
        labels=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        channels=1,
        image_size=28,
        splits={"train": 60000, "test": 10000},
        preprocessings=styles.GREY,
    )
    downloads = official_files(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        sizes=(26421880, 29515, 4422102, 5148),
        checksums=(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    )
    other_checksums = tuple(zip(NAMES, _DEBIAN, strict=True))
    tfds_name = "fashion_mnist"
