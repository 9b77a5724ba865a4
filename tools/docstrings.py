"""How the docstrings of this project become those that the site's generator reads."""

import re
import textwrap

import griffe


class ExampleSections(griffe.Extension):
    """Makes of `Example:` and the lines below it a section that is shown as code."""

    def on_instance(self, *, obj, **_):
        """Called for each object that was read."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:\n((?:.+(?:\n|\Z))+)",
                lambda found: "Examples:\n" + textwrap.indent(textwrap.dedent(found[1]), " " * 4),
                obj.docstring.value,
                flags=re.MULTILINE,
            )
