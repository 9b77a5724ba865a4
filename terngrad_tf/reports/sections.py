"""Sections of a report; each is a function of the page and the runs."""

import datetime
import math
from collections.abc import Callable, Sequence

from terngrad_tf.common import tags
from terngrad_tf.reports import charts, exchanges
from terngrad_tf.reports.page import Page, element, picture, table
from terngrad_tf.reports.reading import RunData
from terngrad_tf.reports.texts import STEP, by_run, last, line_name, shown
from terngrad_tf.training.logs import report

# The link over which losses are drawn in seconds.
LINK = "100 Mbit/s"
# Text in place of a chart without curves.
_WITHOUT_CURVE = {
    "Training loss": "No loss was written: the run has not trained so far.",
    "Accuracy": "None was written; the command for an evaluation is below.",
    "Learning rate": "None was written; P-BFGS has none: it searches the length of each step.",
    "Speed": "No speed was written: the run has not trained so far.",
}


def add_summary(page: Page, runs: Sequence[RunData]) -> None:
    """Adds a summary of network, data, progress and results."""
    rows = {
        "network": lambda run: str(run.identity["net"]),
        "data set": lambda run: str(run.identity["dataset_name"]),
        "phase": lambda run: "2: in a subspace" if run.is_phase_2 else "1",
        "processes": lambda run: shown(run.identity.get("num_hosts", 1)),
        "replicas a process": lambda run: shown(run.identity["num_nodes"]),
        "gradients": _gradients,
        "steps": lambda run: f"{run.step:,} of {run.description['max_steps']:,}",
        "last training loss": lambda run: shown(last(run.curve(tags.CROSS_ENTROPY))),
        "accuracy at the last step": _last_accuracy,
        "training time": _training_time,
    }
    page.section("Summary", by_run(runs, rows))


def _gradients(run):
    if run.is_phase_2:
        return "in the subspace"
    if not run.has_codes:
        return "float32"
    bits = run.identity["grad_bits"]
    return "ternary" if bits == 1 else f"{bits} bits"


def _last_accuracy(run):
    found = {
        folder: f"{100 * curve[run.last_step]:.2f} %"
        for folder, scalars in run.evaluations.items()
        if run.last_step in (curve := scalars.get(tags.PRECISION_AT_1, {}))
    }
    if len(found) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{text} in {folder}" for folder, text in found.items()) or shown(None)


def _training_time(run):
    speeds = run.curve(tags.EXAMPLES_PER_SECOND).values()
    if not speeds or not all(0 < speed < math.inf for speed in speeds):
        return "–"
    before = run.steps_before + run.steps_taken_over
    seconds = report.training_seconds(run.scalars, run.identity["batch_size"], before)
    return str(datetime.timedelta(seconds=round(seconds)))


def add_options(page: Page, runs: Sequence[RunData]) -> None:
    """Adds all options; for several runs, first the common options that differ."""
    names = sorted({name for run in runs for name in run.options})

    def rows(chosen):
        return [[name, *(str(run.options.get(name, "–")) for run in runs)] for name in chosen]

    header = ["option", *(run.name for run in runs)]
    everything = element(
        "details", element("summary", f"All {len(names)} options"), table(header, rows(names))
    )
    if len(runs) == 1:
        page.section("Configuration", everything)
        return
    shared = set.intersection(*(set(run.options) for run in runs)) - {"train_dir"}
    different = [
        name
        for name in names
        if name in shared and any(run.options[name] != runs[0].options[name] for run in runs)
    ]
    differences = (
        table(header, rows(different)) if different else element("p", "All options are the same.")
    )
    page.section("Differences in options", differences, everything)


def add_curves(page: Page, runs: Sequence[RunData]) -> None:
    """Adds loss, accuracy, learning rate and speed over steps."""
    lines, drawn = _colours_and_dashes(runs), []
    over_link = _losses_over_link(runs)
    if any(over_link.values()):
        labels = f"seconds: steps as measured, and their bytes at {LINK}", "loss"
        figure = charts.curves(labels, over_link, log=True, lines=lines)
        drawn.append(page.chart(f"Training loss over a link of {LINK}", figure))
    by_title = {
        "Training loss": ("cross-entropy", _losses(runs), True),
        "Accuracy": ("accuracy / %", _accuracies(runs), False),
        "Learning rate": ("learning rate", _curves(runs, tags.LEARNING_RATE), False),
        "Speed": ("examples/s", _curves(runs, tags.EXAMPLES_PER_SECOND), False),
    }
    for title, (label, series, is_log) in by_title.items():
        figure = charts.curves((STEP, label), series, log=is_log, lines=lines)
        hint = element("div", element("h3", title), element("p", _WITHOUT_CURVE[title]))
        drawn.append(page.chart(title, figure) if figure["data"] else hint)
    page.section("Curves", element("div", *drawn, class_="charts"))


def _colours_and_dashes(runs):
    """Returns numbers of a colour and of dashes by name of a line; each run has its colour."""
    if len(runs) == 1:
        return {}
    return {
        line_name(runs, run, name): (colour, max(0, position - 1))
        for colour, run in enumerate(runs)
        for position, name in enumerate(("", "training", *run.evaluations))
    }


def _losses_over_link(runs):
    return {
        line_name(runs, run, "loss" if len(runs) == 1 else ""): report.seconds_on_link(
            run.scalars, run.identity["batch_size"], report.LINKS[LINK]
        )
        for run in runs
        if not run.is_phase_2 and not run.steps_taken_over
    }


def _losses(runs):
    if len(runs) > 1:
        return _curves(runs, tags.CROSS_ENTROPY)
    (run,) = runs
    kinds = {"loss": tags.CROSS_ENTROPY, "smoothed": tags.smoothed(tags.CROSS_ENTROPY)}
    return {name: run.curve(tag) for name, tag in kinds.items()}


def _accuracies(runs):
    return {
        line_name(runs, run, folder): {
            step: 100 * share for step, share in scalars.get(tags.PRECISION_AT_1, {}).items()
        }
        for run in runs
        for folder, scalars in {"training": run.scalars, **run.evaluations}.items()
    }


def _curves(runs, tag):
    return {line_name(runs, run, ""): run.curve(tag) for run in runs}


def add_phase_2(page: Page, runs: Sequence[RunData]) -> None:
    """Adds pictures of training in subspaces."""
    drawn = [
        element("figure", picture(run.picture, f"Phase 2 of {run.name}"))
        for run in runs
        if run.picture is not None
    ]
    how = (
        "No picture: subspace_train draws it after training in the subspace of weight snapshots, "
        "which --snapshot_every_steps or --snapshot_per_epoch keep."
    )
    page.section("Phase 2", *(drawn or [element("p", how)]))


def add_checkpoints(page: Page, runs: Sequence[RunData]) -> None:
    """Adds checkpoints and weight snapshots on disk."""
    header = ["run", "step", "MB", "written"]
    rows = [
        [
            run.name,
            shown(checkpoint.step),
            f"{checkpoint.num_bytes / 1e6:.1f}",
            f"{datetime.datetime.fromtimestamp(checkpoint.time):%Y-%m-%d %H:%M:%S}",
        ]
        for run in runs
        for checkpoint in run.checkpoints
    ]
    snapshots = [
        element("p", f"{run.name}: {run.num_snapshots} weight snapshots in checkpoint_pca.")
        for run in runs
        if run.num_snapshots
    ]
    content = table(header, rows) if rows else element("p", "None yet; see --save_iter.")
    page.section("Checkpoints", content, *snapshots)


def add_next_steps(
    page: Page, runs: Sequence[RunData], next_steps: Callable[[RunData], dict[str, str]]
) -> None:
    """Adds the commands that resume, export and evaluate each run, see `writing.write`."""
    children = []
    for run in runs:
        for title, command in next_steps(run).items():
            children.append(element("h3", title if len(runs) == 1 else f"{run.name}: {title}"))
            children.append(element("pre", command))
    page.section("Resume, evaluate, export", *children)


SECTIONS = (
    add_summary,
    add_options,
    add_curves,
    exchanges.add_traffic,
    exchanges.add_step_times,
    exchanges.add_codes,
    exchanges.add_stragglers,
    add_phase_2,
    add_checkpoints,
)
