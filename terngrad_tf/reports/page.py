"""HTML of a report: elements, tables and the page itself, in a single file.

Contents are text until the page is written: text from files is never interpreted as HTML.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

from slim_data.common.errors import printable
from slim_data.common.extras import import_extra
from terngrad_tf.reports.charts import COLOURS

# Cells of more characters wrap.
_SHORT = 24
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1f2328; --soft: #59636e;
  --line: #d1d9e0; --head: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --soft: #9198a1;
  --line: #3d444d; --head: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 75rem; padding: 1rem clamp(0.75rem, 3vw, 2rem) 3rem;
  background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; padding-bottom: 0.25rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0.75rem 0 0; }
p, footer { color: var(--soft); max-width: 50rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.6rem; text-align: left;
  vertical-align: top; }
th { background: var(--head); font-weight: 600; max-width: 16rem; overflow-wrap: break-word; }
td { white-space: nowrap; }
td.long { white-space: normal; min-width: 9rem; max-width: 22rem; overflow-wrap: anywhere; }
pre { background: var(--head); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.6rem 0.8rem; font-size: 0.85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); margin: 0.75rem 0; }
figure { margin: 0; }
img { max-width: 100%; background: #fff; border-radius: 6px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr));
  gap: 1rem; }
.charts > div { min-width: 0; }
"""
# Redrawn when the page's colours change.
_SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");  // where a drag is to move the page
function draw() {
  const style = getComputedStyle(document.documentElement);
  const [text, line] = ["--text", "--line"].map((name) => style.getPropertyValue(name));
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
  const template = { layout: { font: { color: text, family: "system-ui, sans-serif" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", xaxis: axis, yaxis: axis,
    colorway: COLOURS,
    dragmode: touch.matches ? false : "zoom", margin: { l: 10, r: 10, t: 10, b: 10 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" } } };
  FIGURES.forEach((figure, number) => Plotly.react(`figure-${number}`, figure.data,
    { ...figure.layout, template }, { responsive: true, displayModeBar: false }));
}
dark.addEventListener("change", draw);
draw();
"""


def element(
    tag: str, *children: ElementTree.Element | str, **attributes: str
) -> ElementTree.Element:
    """Creates an HTML element; an attribute's last underscore, as in `class_`, is removed."""
    made = ElementTree.Element(tag, {name.rstrip("_"): text for name, text in attributes.items()})
    for child in children:
        if not isinstance(child, str):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> ElementTree.Element:
    """Creates a scrolling table with the first cell of each row as a heading."""
    lines = [element("tr", *(element("th", printable(cell)) for cell in header))]
    for first, *rest in rows:
        cells = (
            element("td", printable(cell), **({"class_": "long"} if len(cell) > _SHORT else {}))
            for cell in rest
        )
        lines.append(element("tr", element("th", printable(first)), *cells))
    return element("div", element("table", *lines), class_="scroll")


def picture(content: bytes, text: str) -> ElementTree.Element:
    """Creates an image from the bytes of a PNG, with an alternative text."""
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return element("img", src=source, alt=text)


class Page:
    """A page under construction, section by section."""

    def __init__(self, title: str):
        self._title = title
        self._body = [element("h1", title)]
        self._figures = []

    def section(self, title: str, *children: ElementTree.Element | str) -> None:
        """Adds a heading with content."""
        self._body.append(element("section", element("h2", title), *children))

    def chart(self, title: str, figure: dict[str, Any]) -> ElementTree.Element:
        """Returns an element that shows a figure of `charts`."""
        self._figures.append(figure)
        name = f"figure-{len(self._figures) - 1}"
        place = element("div", id=name, style=f"height: {figure['layout']['height']}px")
        return element("div", element("h3", title), place)

    def html(self, footer: str) -> str:
        """Returns the text of the whole file.

        Raises:
            DataError: the library that draws the charts is not installed.
        """
        scripts = []
        if self._figures:
            # A "<" in the data must not end the script.
            figures = json.dumps(self._figures, allow_nan=False).replace("<", "\\u003c")
            data = f"const FIGURES = {figures}, COLOURS = {json.dumps(COLOURS)};"
            scripts = [import_extra("plotly.offline").get_plotlyjs(), data + _SCRIPT]
        page = element(
            "html",
            element(
                "head",
                element("meta", charset="utf-8"),
                element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                element("title", self._title),
                element("style", _STYLE),
            ),
            element("body", *self._body, element("footer", footer)),
            *(element("script", script) for script in scripts),
            lang="en",
        )
        return f"<!doctype html>\n{ElementTree.tostring(page, 'unicode', method='html')}\n"
