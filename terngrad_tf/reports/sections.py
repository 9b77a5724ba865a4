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


def add_summary(page: Page, runs: Sequence[RunData]) -> None:
    """Adds a summary of network, data, progress and results."""

    def accuracy(run):
        found = {
            folder: f"{100 * curve[run.last_step]:.2f} %"
            for folder, scalars in run.evaluations.items()
            if run.last_step in (curve := scalars.get(tags.PRECISION_AT_1, {}))
        }
        if len(found) == 1:
            return next(iter(found.values()))
        return ", ".join(f"{text} in {folder}" for folder, text in found.items()) or shown(None)

    rows = {
        "network": lambda run: str(run.identity["net"]),
        "data set": lambda run: str(run.identity["dataset_name"]),
        "phase": lambda run: "2: in a subspace" if run.is_phase_2 else "1",
        "processes": lambda run: shown(run.identity.get("num_hosts", 1)),
        "replicas a process": lambda run: shown(run.identity["num_nodes"]),
        "gradients": _gradients,
        "steps": lambda run: f"{run.step:,} of {run.description['max_steps']:,}",
        "last training loss": lambda run: shown(last(run.curve(tags.CROSS_ENTROPY))),
        "accuracy at the last step": accuracy,
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
    losses, accuracies, over_link, lines = {}, {}, {}, {}
    for number, run in enumerate(runs):
        if not run.is_phase_2 and not run.steps_taken_over:
            name = "loss" if len(runs) == 1 else ""
            over_link[line_name(runs, run, name)] = report.seconds_on_link(
                run.scalars, run.identity["batch_size"], report.LINKS[LINK]
            )
        kinds = {"loss": tags.CROSS_ENTROPY, "smoothed": tags.smoothed(tags.CROSS_ENTROPY)}
        for name, tag in kinds.items() if len(runs) == 1 else [("", tags.CROSS_ENTROPY)]:
            losses[line_name(runs, run, name)] = run.curve(tag)
        for name, scalars in {"training": run.scalars, **run.evaluations}.items():
            percent = {s: 100 * value for s, value in scalars.get(tags.PRECISION_AT_1, {}).items()}
            accuracies[line_name(runs, run, name)] = percent
        if len(runs) > 1:
            names = ("", "training", *run.evaluations)
            lines |= {line_name(runs, run, n): (number, max(0, i - 1)) for i, n in enumerate(names)}
    seconds = f"seconds: steps as measured, and their bytes at {LINK}"
    drawn = [
        ("Training loss", charts.curves((STEP, "cross-entropy"), losses, log=True, lines=lines)),
        ("Accuracy", charts.curves((STEP, "accuracy / %"), accuracies, lines=lines)),
    ]
    if any(over_link.values()):
        figure = charts.curves((seconds, "loss"), over_link, log=True, lines=lines)
        drawn.insert(0, (f"Training loss over a link of {LINK}", figure))
    for title, tag, label in (
        ("Learning rate", tags.LEARNING_RATE, "learning rate"),
        ("Speed", tags.EXAMPLES_PER_SECOND, "examples/s"),
    ):
        series = {line_name(runs, run, ""): run.curve(tag) for run in runs}
        drawn.append((title, charts.curves((STEP, label), series, lines=lines)))
    missing = {
        "Training loss": "No loss was written: the run has not trained so far.",
        "Accuracy": "None was written; the command for an evaluation is below.",
        "Learning rate": "None was written; P-BFGS has none: it searches the length of each step.",
        "Speed": "No speed was written: the run has not trained so far.",
    }
    page.section(
        "Curves",
        element(
            "div",
            *(
                page.chart(title, figure)
                if figure["data"]
                else element("div", element("h3", title), element("p", missing[title]))
                for title, figure in drawn
            ),
            class_="charts",
        ),
    )


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
