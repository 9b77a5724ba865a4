# TensorFlow publishes no types, and those that others wrote refuse calls that it takes.
from typing import Any

def __getattr__(name: str) -> Any: ...
