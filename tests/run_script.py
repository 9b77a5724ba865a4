"""Runs a script, in which Python looks for garbage seldom: `python tests/run_script.py SCRIPT ...`.

Libraries load sooner so, and tests start many processes.
"""

import atexit
import gc
import pathlib
import runpy
import sys


def collect_seldom():
    """Lets Python look for garbage seldom, and not among what there is now, nor at the end."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    collect_seldom()
    del sys.argv[0]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
