"""Converts the docstrings of this project for the site's generator."""

import ast
import re
import textwrap

import griffe

from tools import reference

# An example's heading, and the lines up to an empty one.
EXAMPLE = re.compile(r"^(Example\b[^:]*:)\n((?:.+(?:\n|\Z))+)", re.MULTILINE)


LINKS = reference.links()
# A public name in backticks, alone or called.
NAME = re.compile(r"(?<![\[`])`(\w+)(\([^`]*\))?`(?!`)")


class ExampleSections(griffe.Extension):
    """Shows the lines below `Example:` as code, and options' texts."""

    def on_instance(self, *, obj, **_):
        """Called for each object that was read."""
        if obj.is_attribute and (found := _option(obj.value)):
            default, text = found
            obj.docstring = griffe.Docstring(text, parent=obj) if text else obj.docstring
            # The default in a signature.
            obj.value = default
        if obj.docstring:
            obj.docstring.value = NAME.sub(_as_link, obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(_as_code, obj.docstring.value)


def _option(value):
    """The default and the text, if any, of an `option(...)` or `redeclared(...)`; else None."""
    call = ast.parse(str(value), mode="eval").body if isinstance(value, griffe.ExprCall) else None
    name = getattr(getattr(call, "func", None), "id", None)
    if name not in ("option", "redeclared"):
        return None
    texts = [keyword.value for keyword in call.keywords if keyword.arg == "text"]
    texts += call.args[1:2] if name == "option" else []
    text = next((text.value for text in texts if isinstance(text, ast.Constant)), None)
    return value.arguments[0 if name == "option" else 2], text


def _as_link(found):
    path = LINKS.get(found[1])
    is_word = found[1].islower() and "_" not in found[1]
    return found[0] if path is None or is_word else f"[{found[0]}][{path}]"


def _as_code(found):
    code = textwrap.dedent(found[2]).strip()
    language = "pycon" if code.startswith(">>>") else "python"
    return f"**{found[1]}**\n\n```{language}\n{code}\n```\n"
