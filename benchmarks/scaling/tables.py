"""Tables of `benchmarks.scaling`."""

# Ternary modes and their wires.
WIRES = {"ternary": "auto", "bidirectional": "bidirectional"}


def expected(rows):
    """Returns a Markdown table of expected steps.

    Args:
        rows: list of dicts: "workers", and the milliseconds of a step by mode.
    """
    lines = [
        f"| workers | float32, ms | {' | times faster | '.join(f'{w}, ms' for w in WIRES)}"
        " | times faster |",
        f"|{'---|' * (2 + 2 * len(WIRES))}",
    ]
    for row in rows:
        cells = [f"{row['workers']}", f"{row['float32']:,.0f}"]
        for mode in WIRES:
            cells += [f"{row[mode]:,.0f}", f"{row['float32'] / row[mode]:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def checks(rows):
    """Returns a Markdown table of expected and measured steps on hosts of one machine.

    Args:
        rows: list of dicts: "hosts", "gradients", and the milliseconds "expected" and "measured".
    """
    lines = [
        "| hosts of this machine | gradients | expected, ms | measured, ms | ratio |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['hosts']} | {row['gradients']} | {row['expected']:.0f} | {row['measured']:.0f}"
        f" | {row['expected'] / row['measured']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)
