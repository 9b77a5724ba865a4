"""Reads a run's folder: its description, logs, evaluations and checkpoints."""

import contextlib
import dataclasses
import glob
import math
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

from terngrad_tf.common import tags
from terngrad_tf.common.files import open_regular
from terngrad_tf.distribute.telemetry import callback
from terngrad_tf.subspace.weights import snapshot_files
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.logs import report
from terngrad_tf.training.storage import checkpoints, run_folder

_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_PICTURE_BYTES = 2**24


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint; `time` is the Unix time of writing."""

    step: int
    num_bytes: int
    time: float


@dataclasses.dataclass(frozen=True)
class RunData:
    """A run, read from its folder.

    Args:
        scalars: result of `report.read_scalars`.
        telemetry: records by step, ascending.
        evaluations: scalars by label of a folder of evaluations.
        checkpoints: oldest first.
    """

    name: str
    folder: pathlib.Path
    description: dict[str, Any]
    scalars: dict[str, dict[int, float]]
    telemetry: dict[int, dict[str, Any]]
    evaluations: dict[str, dict[str, dict[int, float]]]
    checkpoints: list[Checkpoint]
    num_snapshots: int
    picture: bytes | None

    @property
    def identity(self) -> dict[str, Any]:
        """Options that distinguish the run."""
        return self.description["identity"]

    @property
    def options(self) -> dict[str, Any]:
        """All known options, by name."""
        known = self.description.get("options") or {}
        return {"max_steps": self.description["max_steps"], **known, **self.identity}

    @property
    def is_phase_2(self) -> bool:
        """True if the run trains in a subspace."""
        return "subspace_fingerprint" in self.identity

    @property
    def is_asynchronous(self) -> bool:
        """True if workers push gradients to parameter servers, without exchanges."""
        return bool(self.identity.get("asynchronous"))

    @property
    def has_codes(self) -> bool:
        """True if gradients are exchanged as codes."""
        return self.identity.get("grad_bits", 32) != 32 and not self.is_phase_2

    @property
    def steps_before(self) -> int:
        """Steps before this run, after which its curves start."""
        return self.description.get("steps_before") or 0

    @property
    def steps_taken_over(self) -> int:
        """Steps of another run that this one counts as its own, having started from its checkpoint.

        Known by the first two log lines only: the first may follow any step.
        """
        options = self.options
        if not options.get("pretrained_model_checkpoint_path") or options.get("fine_tune"):
            return 0
        first, *others = self.curve(tags.EXAMPLES_PER_SECOND) or [0]
        return max(0, first - (others[0] - first if others else 1))

    @property
    def last_step(self) -> int:
        """The last step of curves and checkpoints, counted as in curves."""
        logged = [max(curve) for curve in self.scalars.values() if curve]
        saved = [checkpoint.step + self.steps_before for checkpoint in self.checkpoints]
        return max([self.steps_before, *logged, *saved])

    @property
    def step(self) -> int:
        """Number of steps done, by logs and checkpoints."""
        return self.last_step - self.steps_before

    def curve(self, tag: str) -> dict[int, float]:
        """Returns values by step, possibly none."""
        return self.scalars.get(tag, {})

    def tagged(self, tag_of: Callable[[str], str]) -> dict[str, dict[int, float]]:
        """Returns curves by name, for a function of `common.tags`."""
        prefix, suffix = tag_of("\0").split("\0")
        return {
            tag[len(prefix) : len(tag) - len(suffix)]: curve
            for tag, curve in self.scalars.items()
            if tag.startswith(prefix) and tag.endswith(suffix)
        }

    def measured(self, name: str) -> dict[int, float]:
        """Returns the finite numbers of a name in the telemetry, by step."""
        values = {step: record.get(name) for step, record in self.telemetry.items()}
        return {
            step: value
            for step, value in values.items()
            if isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        }

    def mean(self, tag: str) -> float | None:
        """Returns the mean of a curve, or None."""
        values = self.curve(tag).values()
        return sum(values) / len(values) if values else None

    @property
    def received_bytes(self) -> float | None:
        """Mean payload bytes received by a member per step, as in the log lines."""
        pushed, pulled = self.mean(tags.PUSHED_BYTES), self.mean(tags.PULLED_BYTES)
        if pushed is None or pulled is None:
            return self.mean(tags.RECEIVED_BYTES)
        return pushed + pulled


def read_run_data(
    folder: str | os.PathLike, name: str, eval_dir: str | os.PathLike | None = None
) -> RunData:
    """Reads the folder of a run.

    Args:
        eval_dir: folder of TensorBoard logs of evaluations, besides folders named eval... in the
            run's folder, and folders beside it with its name and _eval...
    """
    folder = pathlib.Path(folder)
    description = run_folder.read_run(folder)
    if description is None:
        what = "no run: run.json is missing" if folder.is_dir() else "nothing: there is no folder"
        raise UserError(f"RUN must be the --train_dir of a run. {str(folder)!r} holds {what}")
    return RunData(
        name=name,
        folder=folder,
        description=description,
        scalars=report.read_scalars(folder),
        telemetry=_read_telemetry(folder / callback.FILE, description.get("steps_before") or 0),
        evaluations={
            label: report.read_scalars(path) for label, path in _eval_dirs(folder, eval_dir).items()
        },
        checkpoints=_find_checkpoints(folder),
        num_snapshots=len(snapshot_files.find_snapshots(folder / run_folder.SNAPSHOT_FOLDER)),
        picture=_read_picture(folder / run_folder.PICTURE_FILE),
    )


def _eval_dirs(folder, eval_dir):
    """Returns a dict from labels to paths."""
    if eval_dir is not None and not os.path.isdir(eval_dir):
        raise UserError(f"`eval_dir` must be a folder. Received: eval_dir={str(eval_dir)!r}")
    own = folder.absolute()
    found = {path.name: path for path in sorted(own.glob("eval*")) if path.is_dir()}
    for path in sorted(own.parent.glob(f"{glob.escape(own.name)}_eval*")):
        label = path.name.removeprefix(f"{own.name}_")
        if path.is_dir():
            found[path.name if label in found else label] = path
    if eval_dir is not None and pathlib.Path(eval_dir).absolute() not in found.values():
        found[str(eval_dir)] = pathlib.Path(eval_dir)
    return found


def _read_telemetry(path, steps_before):
    """Returns records by step, counted as in curves."""
    return {steps_before + step: record for step, record in callback.read_records(path).items()}


def _find_checkpoints(folder):
    found = []
    for index in folder.glob(f"{checkpoints.NAME}-*.index"):
        step = re.fullmatch(r"\d{1,18}", index.stem.rpartition("-")[2])
        if step is None:
            continue
        # A run that goes on removes its oldest.
        with contextlib.suppress(FileNotFoundError):
            parts = [path.stat() for path in (index, *folder.glob(f"{index.stem}.data-*"))]
            num_bytes = sum(part.st_size for part in parts)
            found.append(Checkpoint(int(step[0]), num_bytes, max(p.st_mtime for p in parts)))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def _read_picture(path):
    try:
        with open_regular(path) as file:
            content = file.read(_MAX_PICTURE_BYTES)
    except (OSError, ValueError):
        return None
    return content if content.startswith(_PNG) else None
