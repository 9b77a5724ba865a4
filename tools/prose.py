"""Warns of phrases that an editor would rewrite, in docstrings, comments, messages and pages.

    python tools/prose.py          # hits in 1,000 words, a line for each folder
    python tools/prose.py --list   # the sentences, too

A hit is a place to look, not an error: the exit status is always 0.
"""

import argparse
import ast
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("terngrad_tf", "slim_data", "benchmarks", "docs")
# Hits in 1,000 words; Optax has some 2.5.
MOST = 4
PATTERNS = {
    "starts with a preposition": (r"^(Of|By|In|With|From|To|Within|Around|Beside|Among|Between) "),
    "starts with a clause as subject": (
        r"^(What|Who|Whether|Which|How|Whatever|Whoever|That)\b(?!.*\?)"
    ),
    "'where' for 'if'": r"\b[Ww]here (there|it|they|one|no|a|the|all|several)\b",
    "'tell' for 'report' or 'return'": r"\b([Tt]ells?|told|telling)\b",
    "a pronoun for a noun": (
        r"\b(so (many|much|long)|(those|that) of|as (many|much) as|of (its|their|one's) own)\b"
    ),
    "a preposition without a noun": (
        r"\b([Nn]obody|[Nn]othing|done without|looked at|goes? on|who comes)\b"
    ),
}


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of at least four words."""
    for part in re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=[-*|#>])", text):
        sentence = re.sub(r"\s+", " ", part).strip(" #\"'|-*>`")
        if len(sentence.split()) >= 4:
            yield sentence


def prose(path: pathlib.Path) -> Iterator[str]:
    """Yields the sentences of a page outside of code, or of a module's texts and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from sentences(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from sentences(node.value)
    comment = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment.append(token.string.lstrip("# "))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE):
            yield from sentences(" ".join(comment))
            comment = []


def main() -> None:
    """Prints a line for each folder, and the sentences with --list."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print each sentence with a hit")
    shown = parser.parse_args().list
    for folder in FOLDERS:
        words, hits = 0, 0
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md"):
                continue
            for sentence in prose(path):
                words += len(sentence.split())
                for name, pattern in PATTERNS.items():
                    if re.search(pattern, sentence):
                        hits += 1
                        if shown:
                            print(f"{path.relative_to(ROOT)}: {name}: {sentence[:120]}")
        rate = 1000 * hits / words
        warning = f"; warning: more than {MOST}, see tools/prose.py --list" if rate > MOST else ""
        print(f"prose: {folder}: {rate:.1f} hits in 1,000 words{warning}")


if __name__ == "__main__":
    main()
