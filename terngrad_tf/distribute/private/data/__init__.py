"""How data sets of Keras and TensorFlow reach replicas."""

__all__ = []
