"""Tables in Markdown."""


def table(titles, rows):
    """Returns a table of rows, which are lists of cells, below titles such as "mode | hosts"."""
    return "\n".join([head(titles), *map(row, rows)])


def head(titles):
    """Returns the two lines that begin a table."""
    return f"| {titles} |\n|{'---|' * (titles.count(' | ') + 1)}"


def row(cells):
    """Returns the line of a row."""
    return f"| {' | '.join(map(str, cells))} |"
