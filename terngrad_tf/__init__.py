"""TernGrad and dimension-reduction training for TensorFlow 2 and Keras 3."""

from terngrad_tf import models
from terngrad_tf.distribute import TernaryAllReduce, TernGradStrategy, Traffic
from terngrad_tf.version import __version__

__all__ = ["TernGradStrategy", "TernaryAllReduce", "Traffic", "__version__", "models"]
