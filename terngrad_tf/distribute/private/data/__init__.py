"""Brings the data sets of Keras and TensorFlow to replicas."""

__all__ = []
