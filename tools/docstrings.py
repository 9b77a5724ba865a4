"""Converts the docstrings of this project for the site's generator."""

import re
import textwrap

import griffe

# The heading of an example, and the lines below it up to an empty line.
EXAMPLE = re.compile(r"^(Example\b[^:]*:)\n((?:.+(?:\n|\Z))+)", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Shows the lines below `Example:` as code."""

    def on_instance(self, *, obj, **_):
        """Called for each object that was read."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_as_code, obj.docstring.value)


def _as_code(found):
    code = textwrap.dedent(found[2]).strip()
    language = "pycon" if code.startswith(">>>") else "python"
    return f"**{found[1]}**\n\n```{language}\n{code}\n```\n"
