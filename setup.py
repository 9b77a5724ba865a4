"""Packaging of terngrad_tf: metadata, dependencies and console commands."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).resolve().parent
README = ROOT / "README.md"
VERSION = re.search(
    r'^__version__ = "([^"]+)"$',
    (ROOT / "terngrad_tf" / "version.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)

# tensorflow-datasets imports importlib_resources and does not say so.
TFDS = ["tensorflow-datasets>=4.9,<5", "importlib_resources>=6,<8"]

setup(
    name="terngrad_tf",
    version=VERSION,
    description="Data-parallel Keras training with ternary gradients, 20 times fewer bytes sent",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=["tensorflow", "keras", "distributed training", "gradient compression", "TernGrad"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    # TensorFlow publishes no wheels for later interpreters within the supported range.
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["terngrad_tf", "terngrad_tf.*", "slim_data", "slim_data.*"]),
    install_requires=[
        # Both ends of the TensorFlow and Keras ranges are tested: scripts/test_tensorflow_range.sh.
        "tensorflow>=2.18,<2.22",
        "keras>=3.12,<3.16",
        # The viewer of the logs, which TensorFlow 2.21 no longer brings along.
        "tensorboard>=2.18,<2.22",
        "numpy>=1.26,<3",
        "absl-py>=2.1,<3",
        "safetensors>=0.4,<1",
        "scikit-learn>=1.5,<2",
        "scipy>=1.11,<2",
        "matplotlib>=3.9,<4",
        "rich>=13,<16",
        "defusedxml>=0.7.1,<0.8",
    ],
    extras_require={
        "tfds": TFDS,
        # For benchmarks/cluster.py, in an environment of its own.
        "benchmarks": ["torch>=2.6,<3"],
        "dev": [
            "pytest>=8.3,<10",
            "pytest-xdist>=3.6,<4",
            "hypothesis>=6.110,<7",
            "ruff>=0.17,<0.18",
            *TFDS,
        ],
    },
    entry_points={
        "console_scripts": [
            "mnist_train = terngrad_tf.bin.mnist_train:run",
            "mnist_distributed_train = terngrad_tf.bin.mnist_distributed_train:run",
            "mnist_eval = terngrad_tf.bin.mnist_eval:run",
            "cifar10_train = terngrad_tf.bin.cifar10_train:run",
            "cifar10_distributed_train = terngrad_tf.bin.cifar10_distributed_train:run",
            "cifar10_eval = terngrad_tf.bin.cifar10_eval:run",
            "imagenet_train = terngrad_tf.bin.imagenet_train:run",
            "imagenet_distributed_train = terngrad_tf.bin.imagenet_distributed_train:run",
            "imagenet_eval = terngrad_tf.bin.imagenet_eval:run",
            "flowers_train = terngrad_tf.bin.flowers_train:run",
            "flowers_eval = terngrad_tf.bin.flowers_eval:run",
            "resnet50_imagenet_stage_1 = terngrad_tf.bin.resnet50_imagenet_stage_1:run",
            "subspace_train = terngrad_tf.bin.subspace_train:run",
            "terngrad_quickstart = terngrad_tf.bin.quickstart:run",
            "download_and_convert_data = slim_data.download_and_convert_data:run",
            "build_image_data = slim_data.build_image_data:run",
            "build_imagenet_data = slim_data.build_imagenet_data:run",
            "find_records = slim_data.find_records:run",
            "prepare_flowers = slim_data.prepare_flowers:run",
            "prepare_imagenet = slim_data.prepare_imagenet:run",
            "split_dataset = slim_data.split:run",
            "validate_dataset = slim_data.validate:run",
        ],
    },
    zip_safe=False,
)
