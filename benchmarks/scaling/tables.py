"""Tables of `benchmarks.scaling`.

Rows of kind "prediction" hold the expected "milliseconds" of a step by "hosts" and "mode"; rows of
kind "check" hold measured ones, and "expected_milliseconds".
"""

from benchmarks.lib import markdown

# Ternary modes and their wires.
WIRES = {"ternary": "auto", "bidirectional": "bidirectional"}


def predicted(rows, mode):
    """Returns {hosts: expected milliseconds} of a mode."""
    return {
        row["hosts"]: row["milliseconds"]
        for row in rows
        if (row["kind"], row["mode"]) == ("prediction", mode)
    }


def checked(rows):
    """Returns the rows of measured steps."""
    return [row for row in rows if row["kind"] == "check"]


def predictions(rows):
    """Returns a Markdown table of expected steps."""
    lines = []
    for hosts, float32 in predicted(rows, "float32").items():
        cells = [hosts, f"{float32:,.0f}"]
        for mode in WIRES:
            milliseconds = predicted(rows, mode)[hosts]
            cells += [f"{milliseconds:,.0f}", f"{float32 / milliseconds:.1f}"]
        lines.append(cells)
    titles = " | ".join(f"{mode}, ms | times faster" for mode in WIRES)
    return markdown.table(f"hosts | float32, ms | {titles}", lines)


def checks(rows):
    """Returns a Markdown table of expected and measured steps."""
    lines = []
    for row in checked(rows):
        expected, measured = row["expected_milliseconds"], row["milliseconds"]
        cells = [row["hosts"], row["mode"], f"{expected:,.0f}", f"{measured:,.0f}"]
        lines.append([*cells, f"{expected / measured:.2f}"])
    titles = "hosts of this machine | gradients | expected, ms | measured, ms | ratio"
    return markdown.table(titles, lines)
