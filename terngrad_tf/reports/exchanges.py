"""Sections on the exchange of gradients: bytes, times, codes and waits."""

import statistics
from collections.abc import Sequence

from terngrad_tf.common import tags
from terngrad_tf.reports import charts
from terngrad_tf.reports.page import Page, element
from terngrad_tf.reports.reading import RunData
from terngrad_tf.reports.texts import STEP, by_run, last, line_name, scaled, shown, whole
from terngrad_tf.training.logs import report

# Ordered as in a step.
_PHASES = {
    "rest_seconds": "forward, backward, data",
    "scale_seconds": "scales",
    "encode_seconds": "encode",
    "exchange_seconds": "exchange",
    "decode_seconds": "decode",
}


def add_traffic(page: Page, runs: Sequence[RunData]) -> None:
    """Adds bytes, their ratio to float32, and transfer times."""
    if not any(run.received_bytes is not None for run in runs):
        page.section("Bytes", element("p", "No exchange: one replica only; see --num_nodes."))
        return
    rows = {
        "wire": _wire,
        "bytes received a step by each member": lambda run: whole(run.received_bytes),
        "with float32": lambda run: whole(_float32_bytes(run)),
        "ratio": lambda run: shown(run.mean(tags.COMPRESSION_RATIO)),
        "bytes of all steps": lambda run: whole(_bytes_of_all_steps(run)),
    }
    for link, rate in report.LINKS.items():
        rows |= {
            f"ms a step at {link}": lambda run, rate=rate: scaled(run.received_bytes, 8e3 / rate),
            f"with float32 at {link}": lambda run, rate=rate: scaled(
                _float32_bytes(run), 8e3 / rate
            ),
        }
    lengths = {
        "received": {run.name: run.received_bytes or 0 for run in runs},
        "with float32": {run.name: _float32_bytes(run) or 0 for run in runs},
    }
    page.section(
        "Bytes",
        element(
            "p",
            "Payload, means over the log lines. Each member sends as many bytes as it receives. On "
            "one machine they take no time; the times are estimates for a link.",
        ),
        by_run(runs, rows),
        page.chart("Bytes a step", charts.bars(("", "bytes a step"), lengths, sideways=True)),
    )


def _wire(run):
    newest = run.telemetry[max(run.telemetry)] if run.telemetry else {}
    return shown(newest.get("wire", run.options.get("wire")))


def _float32_bytes(run):
    ratio = run.mean(tags.COMPRESSION_RATIO)
    return None if None in (run.received_bytes, ratio) else run.received_bytes * ratio


def _bytes_of_all_steps(run):
    if run.received_bytes is None:
        return None
    return run.received_bytes * (run.step - run.steps_taken_over)


def _hint(runs, how):
    """Returns the text of a section without data; `how` names what brings them."""
    if all(run.is_asynchronous for run in runs):
        return "Not measured: asynchronous workers exchange nothing with each other."
    return how


def add_step_times(page: Page, runs: Sequence[RunData]) -> None:
    """Adds the phases of a step's time, and the errors of ternary gradients."""
    if not any(run.measured(phase) for run in runs for phase in _PHASES):
        how = "No measurements: --telemetry_freq=10 makes a record every 10 steps, on CPUs."
        page.section("Where a step's time goes", element("p", _hint(runs, how)))
        return
    rows = {
        f"{name} / ms": lambda run, phase=phase: scaled(_median(run, phase), 1e3)
        for phase, name in {"step_seconds": "step", **_PHASES}.items()
    }
    rows |= {
        "cosine with the float gradients": lambda run: shown(_median(run, "cosine")),
        "relative error": lambda run: shown(_median(run, "relative_error")),
        "codes that are not 0": lambda run: scaled(_median(run, "nonzero_share"), 100, " %"),
    }
    figure = _phases_by_step(*runs) if len(runs) == 1 else _phases_by_run(runs)
    page.section(
        "Where a step's time goes",
        page.chart("Phases of a step, as the process that writes the logs measured them", figure),
        element("p", "Medians over the records:"),
        by_run(runs, rows),
    )


def _phases_by_step(run):
    series = {
        name: {step: 1e3 * seconds for step, seconds in found.items()}
        for phase, name in _PHASES.items()
        if (found := run.measured(phase))
    }
    return charts.bars((STEP, "ms a step"), series, stacked=True)


def _phases_by_run(runs):
    series = {
        name: {
            run.name: 1e3 * seconds for run in runs if (seconds := _median(run, phase)) is not None
        }
        for phase, name in _PHASES.items()
    }
    return charts.bars(("", "ms a step"), series, stacked=True, sideways=True)


def _median(run, name):
    found = run.measured(name)
    return statistics.median(found.values()) if found else None


def add_codes(page: Page, runs: Sequence[RunData]) -> None:
    """Adds the share of zeros among the codes of each layer."""
    found = {run.name: run.tagged(tags.ternary_sparsity) for run in runs}
    layers = sorted({layer for curves in found.values() for layer in curves})
    if not layers:
        why = (
            "Their values are written every --save_iter steps."
            if any(run.has_codes for run in runs)
            else "Gradients are ternary with --grad_bits=1, and finer codes with 2 to 8."
        )
        hint = _hint(runs, f"There is no record of codes. {why}")
        page.section("Codes", element("p", hint))
        return
    lengths = {
        name: {layer: 100 * (last(curves[layer]) or 0.0) for layer in layers if layer in curves}
        for name, curves in found.items()
        if curves
    }
    figure = charts.bars(("", "zeros / %"), lengths, sideways=True)
    drawn = [page.chart("Share of zeros by layer, in the last record", figure)]
    if len(runs) == 1:
        over_steps = {
            layer: {step: 100 * share for step, share in curve.items()}
            for layer, curve in found[runs[0].name].items()
        }
        figure = charts.curves((STEP, "zeros / %"), over_steps)
        drawn.append(page.chart("Over steps", figure))
    page.section("Codes", *drawn)


def add_stragglers(page: Page, runs: Sequence[RunData]) -> None:
    """Adds how long each process waits for the slowest."""
    series = {
        line_name(runs, run, process): {step: 1e3 * wait for step, wait in curve.items()}
        for run in runs
        for process, curve in run.tagged(tags.wait_seconds).items()
    }
    if series:
        figure = charts.curves((STEP, "wait in a step / ms"), series)
        content = page.chart("Waits, means of 100 steps; the slowest process waits least", figure)
    elif any(run.identity.get("num_hosts", 1) > 1 for run in runs):
        hint = _hint(runs, "No waits were written: they are means of 100 steps, on CPUs.")
        content = element("p", hint)
    else:
        content = element("p", "One process, without waits. A cluster's waits are shown here.")
    page.section("Stragglers", content)
