"""Markdown that nothing in a trace can break: names become text, never markup, links, mentions or table cells."""

import re
from collections.abc import Iterable, Sequence

from tracelab.kernel_names import escape
from tracelab.reports._page_tables import Column

# Characters that mean something to GitHub's Markdown. As entities they are text wherever they stand.
_MARKUP = re.compile(
    r"[&<>|`\\*\[\]~$@!]|(?<!\w)_|_(?!\w)|#(?=\d)|:(?=//)|(?<=www)\.|(?<=\w):(?=\w+:)|(?<!\w):(?=\w+:)"
)
_BLOCK = re.compile(r"^(\d*)([-+=#.)])")  # at the start of a paragraph: a list, a heading, a rule
_PLAIN = re.compile(r"[\w:.,/# →+·×…()*={}-]+")  # what a code span holds without an entity
_EMPTY = " "


def inline(text: str) -> str:
    """The text for the inside of a line or a cell."""
    return _MARKUP.sub(lambda found: _entity(found[0]), escape(text))


def prose(text: str) -> str:
    """The text for a paragraph or a list item of its own."""
    return _BLOCK.sub(lambda found: found[1] + _entity(found[2]), inline(text).strip())


def code(text: str) -> str:
    """A name in a monospaced font; empty for no name."""
    shown = escape(text).strip()
    if not shown:
        return ""
    if _PLAIN.fullmatch(shown):
        return f"`{shown}`"
    return f"<code>{''.join(c if c.isalnum() or c in ' ,.-→+…' else _entity(c) for c in shown)}</code>"


def md_table(title: str, names: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """A table as lines; `names` are Markdown already, title and columns are text. Empty without rows."""
    if not names:
        return []
    head = [inline(title), *(inline(column.title) for column in columns)]
    rule = ["---", *("--:" if column.right else "---" for column in columns)]
    rows = [[name, *(inline(column.cells[i]) for column in columns)] for i, name in enumerate(names)]
    return [f"| {' | '.join(cell or _EMPTY for cell in row)} |" for row in (head, rule, *rows)]


def bullets(texts: Iterable[str]) -> list[str]:
    """A list of plain texts."""
    return [f"- {prose(text)}" for text in texts]


def details(summary: str, blocks: Sequence[Sequence[str]]) -> list[str]:
    """Blocks behind a fold; nothing where there are none."""
    inside = joined(blocks)
    return ["<details>", f"<summary>{inline(summary)}</summary>", "", *inside, "", "</details>"] if inside else []


def joined(blocks: Sequence[Sequence[str]]) -> list[str]:
    """The blocks that have something to say, a blank line between them."""
    shown = [block for block in blocks if block]
    return [line for i, block in enumerate(shown) for line in ([""] if i else []) + list(block)]


def document(blocks: Sequence[Sequence[str]]) -> str:
    """The whole comment."""
    return "\n".join(joined(blocks)) + "\n"


def _entity(text: str) -> str:
    return "".join(f"&#{ord(c)};" for c in text)
