"""Results of the benchmark of time to accuracy: chosen rates, times and tables.

Rows of kind "training" hold a training's accuracy by number of steps; rows of kind "step" hold the
cost of a step over a link.
"""

import collections
import statistics

from benchmarks.lib import markdown, means

# The links' rates by name.
LINKS = {"1mbit": "1 Mbit/s", "10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}
NAMES = {
    "keras": "Keras, one process",
    "float32": "terngrad_tf, float32",
    "four_bits": "terngrad_tf, 4 bits",
    "ternary": "terngrad_tf, ternary",
    "bidirectional": "terngrad_tf, ternary, bidirectional",
    "auto": 'terngrad_tf, grad_bits="auto"',
    "paper": "terngrad_tf, paper's rule",
    "sparse": "terngrad_tf, paper's rule, sparse, clip 0",
    "local_2": "terngrad_tf, DiLoCo 2, ternary",
    "local_2_0.15_bits": "terngrad_tf, DiLoCo 2, 0.15 bits",
    "local_2_0.3_bits": "terngrad_tf, DiLoCo 2, 0.3 bits",
    "local_3": "terngrad_tf, DiLoCo 3, ternary",
    "local_4": "terngrad_tf, DiLoCo 4, ternary",
    "local_4_0.15_bits": "terngrad_tf, DiLoCo 4, 0.15 bits",
    "local_4_0.3_bits": "terngrad_tf, DiLoCo 4, 0.3 bits",
    "float_local_8": "terngrad_tf, DiLoCo 8, float",
    "local_8": "terngrad_tf, DiLoCo 8, ternary",
    "local_8_0.3_bits": "terngrad_tf, DiLoCo 8, 0.3 bits",
    "local_8_0.1_bits": "terngrad_tf, DiLoCo 8, 0.1 bits",
    "float_local_32": "terngrad_tf, DiLoCo 32, float",
    "local_32": "terngrad_tf, DiLoCo 32, ternary",
    "local_32_0.3_bits": "terngrad_tf, DiLoCo 32, 0.3 bits",
    "ddp_float32": "PyTorch DDP, float32",
    "ddp_fp16": "PyTorch DDP, fp16 hook",
    "ddp_powersgd_1": "PyTorch DDP, PowerSGD rank 1",
    "ddp_powersgd_2": "PyTorch DDP, PowerSGD rank 2",
    "ddp_powersgd_4": "PyTorch DDP, PowerSGD rank 4",
    "post_local_sgd_8": "PyTorch local SGD, 8",
    "post_local_sgd_32": "PyTorch local SGD, 32",
    "torchft_local_sgd_32": "torchft local SGD, 32",
    "torchft_diloco_32": "torchft DiLoCo 32, float",
    "hivemind_32": "hivemind averaging, 32, 8 bits",
}
BASELINE = "ddp_float32"
# First steps that send float32, by mode.
FLOAT_STEPS = {f"ddp_powersgd_{rank}": 2 for rank in (1, 2, 4)}


def trainings(rows, hosts, mode, link="none"):
    """Returns the rows of a mode's trainings over a link."""
    wanted = ("training", hosts, mode, link)
    return [r for r in rows if (r["kind"], r["hosts"], r["mode"], r.get("link")) == wanted]


def best_rate(rows, hosts, mode):
    """Returns the rate that is best on held-out images, in the mean of all rates' common seeds.

    None without a training.
    """
    held_out = collections.defaultdict(dict)
    for row in trainings(rows, hosts, mode):
        held_out[row["rate"]][row["seed"]] = row["held_out"]
    seeds = set.intersection(*map(set, held_out.values())) if held_out else set()
    means = {
        rate: statistics.mean(found[seed] for seed in seeds)
        for rate, found in held_out.items()
        if seeds
    }
    return max(means, key=means.__getitem__, default=None)


def steps_to(row, accuracy):
    """Returns the tested step at which a training first reached an accuracy, or None."""
    reached = (
        s for s, found in zip(row["steps"], row["accuracy"], strict=True) if found >= accuracy
    )
    return next(reached, None)


def best_trainings(rows, hosts, mode):
    """Returns {seed: row} of a mode's trainings at the best rate."""
    rate = best_rate(rows, hosts, mode)
    return {row["seed"]: row for row in trainings(rows, hosts, mode) if row["rate"] == rate}


def common_seeds(rows, hosts):
    """Returns the set of the seeds that all trained modes have at their best rates."""
    found = [seeds for mode in NAMES if (seeds := set(best_trainings(rows, hosts, mode)))]
    return set.intersection(*found) if found else set()


def mean_steps(rows, hosts, mode, accuracy):
    """Returns the mean of `steps_to` over common seeds; None if a seed misses it."""
    best = best_trainings(rows, hosts, mode)
    found = [steps_to(best[seed], accuracy) for seed in common_seeds(rows, hosts) if best]
    return statistics.mean(found) if found and None not in found else None


def seconds_to(rows, hosts, link, mode, accuracy):
    """Returns seconds to an accuracy over a link: steps times a step's time; None if unknown."""
    milliseconds = {
        row["mode"]: row["milliseconds"]
        for row in rows
        if (row["kind"], row["hosts"], row["link"]) == ("step", hosts, link)
    }
    steps = mean_steps(rows, hosts, mode, accuracy)
    first = FLOAT_STEPS.get(mode, 0)
    if steps is None or mode not in milliseconds or (first and "ddp_float32" not in milliseconds):
        return None
    first_milliseconds = first * milliseconds["ddp_float32"] if first else 0
    return ((steps - first) * milliseconds[mode] + first_milliseconds) / 1e3


def measured_links(rows, hosts):
    """Returns the links with timed steps, slowest first."""
    found = {row["link"] for row in rows if (row["kind"], row["hosts"]) == ("step", hosts)}
    return [link for link in LINKS if link in found]


def accuracies(rows, hosts, levels):
    """Returns final test accuracy and steps to each level as Markdown, a line per mode.

    Seeds are pairs: they fix initial weights and batches for all modes alike. Means are over the
    seeds that all modes have, differences over all pairs.
    """
    lines = []
    baseline = _final_rows(rows, hosts, BASELINE)
    seeds = common_seeds(rows, hosts)
    for mode in NAMES:
        found = _final_rows(rows, hosts, mode)
        if found:
            ends = [100 * found[seed]["accuracy"] for seed in seeds]
            cells = [NAMES[mode], f"{best_rate(rows, hosts, mode):g}"]
            cells.append(means.with_deviation(ends, 2))
            pairs = found.keys() & baseline.keys()
            points, p = means.difference(found, baseline, "accuracy")
            cells += ["", "", ""] if mode == BASELINE else [points, len(pairs), p]
            for level in levels:
                steps = mean_steps(rows, hosts, mode, level)
                cells.append("not reached" if steps is None else f"{steps:.0f}")
            lines.append(cells)
    titles = f"mode | rate | test accuracy, % | points to {NAMES[BASELINE]} | pairs | p | "
    titles += " | ".join(f"steps to {100 * level:g} %" for level in levels)
    return markdown.table(titles, lines)


def _final_rows(rows, hosts, mode):
    """Returns {seed: {"accuracy": accuracy at the end}} at the best rate."""
    found = best_trainings(rows, hosts, mode)
    return {seed: {"accuracy": row["accuracy"][-1]} for seed, row in found.items()}


def step_times(rows, hosts):
    """Returns received KB and milliseconds of a step by link as Markdown, a line per mode."""
    links = measured_links(rows, hosts)
    lines = []
    for mode in NAMES:
        found = {
            row["link"]: row
            for row in rows
            if (row["kind"], row["hosts"], row["mode"]) == ("step", hosts, mode)
        }
        if found:
            received = statistics.median(row["received_bytes"] for row in found.values())
            cells = [NAMES[mode], f"{received / 1e3:,.1f}"]
            cells += [
                f"{found[link]['milliseconds']:,.1f}" if link in found else "" for link in links
            ]
            lines.append(cells)
    titles = " | ".join(f"{LINKS[link]}: ms" for link in links)
    return markdown.table(f"mode | KB received a step | {titles}", lines)


def times(rows, hosts, levels):
    """Returns seconds to each level by link as Markdown, a line per mode."""
    links = measured_links(rows, hosts)
    lines = []
    for mode in NAMES:
        cells = []
        for link in links:
            found = [seconds_to(rows, hosts, link, mode, level) for level in levels]
            texts = ("-" if s is None else f"{s:,.1f}" if s < 100 else f"{s:,.0f}" for s in found)
            cells.append("/".join(texts) if any(found) else "")
        if any(cells):
            lines.append([NAMES[mode], *cells])
    return markdown.table(" | ".join(["mode", *(LINKS[link] for link in links)]), lines)


def checks(rows, level):
    """Returns a line per training over its link: predicted and measured seconds.

    The first steps trace functions, which the prediction omits.
    """
    lines = []
    for row in rows:
        if row["kind"] != "training" or row["link"] == "none":
            continue
        steps = steps_to(row, level)
        predicted = seconds_to(rows, row["hosts"], row["link"], row["mode"], level)
        if steps is not None and predicted is not None:
            # Scaled to this seed's steps, to compare the time of a step.
            predicted *= steps / mean_steps(rows, row["hosts"], row["mode"], level)
            measured = row["seconds"][row["steps"].index(steps)]
            seconds = [f"{value:,.1f}" for value in (predicted, measured, row["first_seconds"])]
            lines.append([NAMES[row["mode"]], LINKS[row["link"]], *seconds])
    titles = "mode | link | s predicted | s measured | of which the first 32 steps"
    return markdown.table(titles, lines)
