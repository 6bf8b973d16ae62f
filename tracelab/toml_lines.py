"""On which line of a TOML text each key and each array element stands: the standard library's reader keeps no lines."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field

Keys = tuple[str | int, ...]

_TOKEN = re.compile(
    r'(?P<text>"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*')"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<mark>[\[\]{}=,.\n])"
    r"""|(?P<word>[^\s\[\]{}=,.\#"']+)"""
    r"|(?P<space>\s)",
    re.DOTALL,
)
_ENDS = ("", ",", "]", "}", "\n")  # what ends a number, a date or a text


@dataclass(frozen=True)
class TomlLines:
    """Lines are counted from 1. `places` maps a path of keys and array indices to its line; `code` holds the text of
    each line without its comment."""

    places: dict[Keys, int]
    code: Sequence[str]

    def line(self, keys: Keys) -> int:
        """The line of a path; that of the nearest table around it where the path itself is not in the text, else 1."""
        return next((self.places[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.places), 1)


def toml_lines(text: str) -> TomlLines:
    """Where everything stands in `text`, which must be valid TOML: that is for `tomllib` to find out first."""
    text = text.replace("\r\n", "\n")
    scan = _Scan(text)
    scan.document()
    code = text.split("\n")
    for line, column in scan.comments:
        code[line - 1] = code[line - 1][:column]
    return TomlLines(scan.places, code)


@dataclass
class _Scan:
    """Walks the tokens of one text and notes what it meets; `_at` is the next token, the last is empty."""

    text: str
    places: dict[Keys, int] = field(default_factory=dict)
    comments: list[tuple[int, int]] = field(default_factory=list)
    _tokens: list[tuple[str, int]] = field(default_factory=list)
    _at: int = 0

    def __post_init__(self) -> None:
        line = 1
        for hit in _TOKEN.finditer(self.text):
            if hit.lastgroup == "comment":
                self.comments.append((line, hit.start() - self.text.rfind("\n", 0, hit.start()) - 1))
            elif hit.lastgroup != "space":
                self._tokens.append((hit[0], line))
            line += hit[0].count("\n")
        self._tokens.append(("", line))

    def document(self) -> None:
        """Headers and the pairs below them."""
        section: Keys = ()
        while self._next:
            if self._took("["):
                self._took("[")  # a header of an array of tables has two
                section = self._key(())
                while self._took("]"):
                    pass
            elif not self._took("\n"):
                self._pair(section)

    @property
    def _next(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _line(self) -> int:
        return self._tokens[self._at][1]

    def _took(self, mark: str) -> bool:
        """Whether the next token is `mark`; steps over it then."""
        taken = self._next == mark
        self._at += taken
        return taken

    def _key(self, prefix: Keys) -> Keys:
        """A key, dotted or not, below `prefix`; each of its parts is noted."""
        keys = prefix
        while self._next not in ("=", *_ENDS):
            if not self._took("."):
                keys = (*keys, next(iter(tomllib.loads(f"{self._next} = 0"))))
                self.places.setdefault(keys, self._line)
                self._at += 1
        return keys

    def _pair(self, prefix: Keys) -> None:
        keys = self._key(prefix)
        self._took("=")
        self._value(keys)

    def _value(self, keys: Keys) -> None:
        if self._took("["):
            self._array(keys)
        elif self._took("{"):
            while not self._took("}"):
                if not (self._took(",") or self._took("\n")):
                    self._pair(keys)
        else:
            while self._next not in _ENDS:
                self._at += 1

    def _array(self, keys: Keys) -> None:
        index = 0
        while not self._took("]"):
            if not (self._took(",") or self._took("\n")):
                self.places[(*keys, index)] = self._line
                self._value((*keys, index))
                index += 1
