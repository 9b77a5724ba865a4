"""Commands to resume, evaluate and export runs, for their reports."""

from __future__ import annotations

import importlib
import os
import pathlib
import shlex
import typing

from absl import flags

import slim_data
from terngrad_tf.bin.command.commands import ALL

if typing.TYPE_CHECKING:
    from terngrad_tf.reports.reading import RunData


FILE = "report.html"
_CLUSTER = ["--worker_hosts=HOST:PORT,HOST:PORT", "--task_id=NUMBER"]


def write_beside(folder: str | os.PathLike, *others: str) -> None:
    """Writes report.html of a run, or of `others` in its folder; warns on failure."""
    from terngrad_tf import reports

    folder = pathlib.Path(folder)
    runs = [folder / name for name in others] or [folder]
    reports.write_or_warn(runs, folder / FILE, next_steps)


def next_steps(run: RunData) -> dict[str, str]:
    """Returns commands by title, for possible next steps with a run."""
    from terngrad_tf.training.evaluation import final_evaluation
    from terngrad_tf.training.storage import run_folder

    dataset, folder = run.identity["dataset_name"], str(run.folder.absolute())
    evaluation = {
        "data_dir": run_folder.data_dir_of(run.description) or "DATA_DIR",
        "checkpoint_dir": folder,
        "eval_dir": f"{folder}_eval",
        "subset": final_evaluation.subset_of(dataset) if dataset in slim_data.DATASETS else "test",
    }
    return {
        **_resume(run, folder),
        "Evaluate": _command(_program(dataset, "eval"), evaluation, "--run_once"),
        "Export": _command("export", {"checkpoint_dir": folder, "output": f"{folder}.keras"}),
    }


def _resume(run, folder):
    """Returns the command line for a run's options, as far as known."""
    # Runs before all options were kept; and workers that come and go have further flags.
    if "data_dir" not in run.options or run.identity.get("shares_batches"):
        return {"Resume": "Repeat the command that started the run."}
    dataset, num_hosts = run.identity["dataset_name"], run.identity.get("num_hosts", 1)
    options, places = run.options | {"train_dir": folder}, []
    if run.identity.get("asynchronous"):
        places = [*_CLUSTER, "--ps_hosts=HOST:PORT", "--job_name=worker", "--async_training"]
    elif num_hosts > 1:
        places = _CLUSTER
    if run.is_phase_2:
        name = "subspace_train"
    else:
        name = _program(dataset, "distributed_train" if places else "train")
        if places and "--async_training" not in places:
            options["batch_size"] //= num_hosts  # the flag is per process
    values = flags.FlagValues()
    importlib.import_module(ALL[name].module).define_flags(values)
    given = {
        flag: options[flag]
        for flag in values
        if options.get(flag) is not None and options[flag] != values[flag].value
    }
    title = "Resume, on each host" if places else "Resume, or go further with more --max_steps"
    command, folder = _command(name, given, *places), run.description.get("working_folder")
    # Paths may be relative.
    return {title: f"cd {shlex.quote(folder)}\n{command}" if folder else command}


def _program(dataset, kind):
    """Returns a data set's own program, which differs from others in defaults only, or MNIST's."""
    name = f"{dataset}_{kind}"
    return name if name in ALL else f"mnist_{kind}"


def _command(program, options, *more):
    arguments = [shlex.quote(f"--{name}={value}") for name, value in options.items()]
    return " \\\n  ".join([f"python -m terngrad_tf.bin.{program}", *arguments, *more])
