"""Messages that end or delay a program: codes, and the advice of docs/troubleshooting.md.

A heading of that page is a code and a message. Imports no TensorFlow.
"""

import contextlib
import dataclasses
import functools
import pathlib
import re

# A link to the page, which wheels hold as a file.
PATH = pathlib.Path(__file__).with_name("troubleshooting.txt")

_EXPLAIN = "terngrad explain"
_HEADING = re.compile(r"^### (E\d+): (.+)$")
_CODE_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
# Variable parts of messages, and their patterns. Order matters.
_VARIABLE = (
    (r"(?:worker|ps) \d+", r"\w+ \d+(?: \([^()]*\))?"),
    (r"\bhost\d(?::\d+)?|\S*/\S+|\S+\.safetensors", r"\S+"),
    (r"'[^']*'", r"'.*?'"),
    (r"[\d,.]*\d", r"[\d,.]+"),
    (r" ?\.\.\. ?", r".*?"),
)
_TOLD = re.compile(rf"{_EXPLAIN} (E\d+)")
_VARIABLES = re.compile("|".join(f"({found})" for found, _ in _VARIABLE))


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of the page, in Markdown.

    Args:
        code: such as "E11".
        title: the heading without its code.
        text: the text below the heading.
        forms: (regular expression, number of its fixed characters) of each form.
    """

    code: str
    title: str
    text: str
    forms: tuple[tuple[re.Pattern[str], int], ...]

    def plain(self) -> str:
        """Returns code, message and advice for a terminal, without links."""
        text = _LINK.sub(r"\1", self.text)
        return f"{self.code}: {self.title}\n\n{text}\n"


@functools.cache
def messages() -> dict[str, Message]:
    """Returns `{code: Message}` in the page's order."""
    return parse(PATH.read_text(encoding="utf-8"))


def parse(page: str) -> dict[str, Message]:
    """Returns `{code: Message}` of a page in Markdown.

    Example:
        >>> parse("### E11: `lost worker 2`\\n\\nRead its log.\\n")["E11"].text
        'Read its log.'
    """
    found = {}
    for part in re.split(r"^(?=#{1,3} )", page, flags=re.M):
        heading, _, text = part.partition("\n")
        if matched := _HEADING.match(heading):
            code, title = matched.groups()
            # A line that begins with "Also" holds further forms.
            also = " ".join(re.findall(r"^Also (.*)$", text, re.M))
            forms = [_form(span) for _, span in _CODE_SPAN.findall(f"{title} {also}")]
            found[code] = Message(code, title, text.strip(), tuple(forms))
    return found


def find(text: str) -> Message | None:
    """Returns the message that a line names, else the most specific that it has, or None."""
    if (told := _TOLD.search(text)) and told[1] in messages():
        return messages()[told[1]]
    line = " ".join(text.replace("`", "").split())
    matches = [
        (fixed, message.code)
        for message in messages().values()
        for pattern, fixed in message.forms
        if fixed and pattern.search(line)
    ]
    return messages()[max(matches)[1]] if matches else None


def with_code(line: str) -> str:
    """Appends the command that explains a line, if the page has its message.

    Example:
        >>> with_code("lost worker 2 (host2:2222: connection refused)")
        'lost worker 2 (host2:2222: connection refused) [terngrad explain E11]'
    """
    message = None
    if _EXPLAIN in line:  # of another process
        return line
    with contextlib.suppress(OSError):  # a line counts for more than its code
        message = find(line)
    return line if message is None else f"{line} [{_EXPLAIN} {message.code}]"


def _form(text):
    """Returns a pattern for a message in a heading, and its number of fixed characters."""
    text, result, end, fixed = text.strip().replace("`", ""), "", 0, 0
    for variable in _VARIABLES.finditer(text):
        fixed_part = text[end : variable.start()]
        result += re.escape(fixed_part) + _VARIABLE[(variable.lastindex or 1) - 1][1]
        end, fixed = variable.end(), fixed + len(fixed_part)
    return re.compile(result + re.escape(text[end:])), fixed + len(text) - end
