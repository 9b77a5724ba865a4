"""How the docstrings of this project become those that the site's generator reads."""

import re
import textwrap

import griffe

# A line that announces an example, and what follows up to an empty line.
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
