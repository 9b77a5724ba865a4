"""Whether this machine has a GPU that TensorFlow may use. Imports no TensorFlow."""

import glob
import os


def has_gpu_driver() -> bool:
    """Returns True if the devices of NVIDIA's driver exist."""
    return bool(glob.glob("/dev/nvidia*")) or os.path.exists("/dev/dxg")
