"""Runs many scripts that use TensorFlow in separate processes, importing it only once.

TensorFlow fixes a process's devices at its first use, so scripts cannot share a process. But a
process that has only imported TensorFlow can be forked.
"""

import os
import pathlib
import runpy
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run_all(scripts, folder):
    """Runs each script in its own folder, one after another.

    Args:
      scripts: {name: text of a Python program}.
      folder: `pathlib.Path` to work in; each program's folder is `folder / name`.

    Returns:
      {name: (exit status, output)}.
    """
    for name, text in scripts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "script.py").write_text(text, encoding="utf-8")
    names = list(map(str, scripts))
    subprocess.run(
        [sys.executable, "-m", "tests.forked_scripts", str(folder), *names],
        check=True,
        cwd=ROOT,
        env=os.environ | {"MPLBACKEND": "agg", "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    results = {}
    for name in scripts:
        status = int((folder / name / "status").read_text())
        output = (folder / name / "output").read_text(encoding="utf-8", errors="replace")
        results[name] = status, output
    return results


def _main(folder, *names):
    import keras  # noqa: F401 - for the children
    import tensorflow  # noqa: F401

    import terngrad_tf.distribute  # noqa: F401

    sys.path.insert(0, str(ROOT))
    for name in names:
        place = pathlib.Path(folder, name)
        child = os.fork()
        if not child:
            _run(place)
        _, status = os.waitpid(child, 0)
        (place / "status").write_text(str(os.waitstatus_to_exitcode(status)))


def _run(place):
    os.chdir(place)
    output = os.open("output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["script.py"]
    status = 1
    try:
        runpy.run_path("script.py", run_name="__main__")
        status = 0
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _main(*sys.argv[1:])
