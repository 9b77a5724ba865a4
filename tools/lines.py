"""Counts lines of code of each folder: `python tools/lines.py`.

Docstrings, comments and blank lines do not count.
"""

import ast
import collections
import io
import pathlib
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("terngrad_tf", "slim_data", "benchmarks")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_OTHER = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def lines_of_code(source: str) -> int:
    """Returns the number of a module's lines of code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _OTHER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def main() -> None:
    """Prints a line for each folder."""
    counts = collections.Counter()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        count = lines_of_code(path.read_text(encoding="utf-8"))
        for folder in path.relative_to(ROOT).parents[:-1]:
            counts[str(folder)] += count
    for folder, count in sorted(counts.items()):
        print(f"{count:6,} {folder}")


if __name__ == "__main__":
    main()
