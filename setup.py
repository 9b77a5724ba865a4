"""For tools that call setup.py; pyproject.toml states what there is to state."""

from setuptools import setup

setup()
