"""Makes texts safe to share: takes paths and secrets out of the names that an analysis needs."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from tracelab.capture.scrub_secrets import Secrets
from tracelab.capture.scrub_values import REMOVED, clean_diagnostic, clean_property, clean_setting

_REMOVED, _REMOVED_PATH = "\ue000", "\ue001"  # private-use characters: no path ends at them
_PART = rf"[\w.+@~%{_REMOVED}{_REMOVED_PATH}-]"
# Two or more components, at the start of a word: `/home/me`, not `attn/ffn` and not `a / b`.
_PATH = re.compile(
    rf"{_REMOVED_PATH}(?:/{_PART}*)*|(?<![\w.)\]])/(?:{_PART}+/)+{_PART}*|\b[A-Za-z]:\\(?:{_PART}|[\\ ])+"
)
# ONNX names its nodes like paths (`/layers.0/attn/MatMul`): last an operator, first no folder of an operating system.
_ONNX_NODE = re.compile(
    r"/(?!(?:home|Users|root|usr|opt|tmp|var|mnt|media|srv|data|etc|nfs|proc|dev|run|lib|work)\w*/)"
    r"(?:[\w.]+/)*[A-Z][A-Za-z]*(?:_\d+)?(?:_output_\d+)?"
)
_LOADED = re.compile(r"(?<=dlopen\()[^()]*(?=\))")
_PUBLIC_LIBRARY = re.compile(r"(?:.*[/\\])?(lib(?:cu|nv|nccl|triton|torch|c10)[\w-]{0,40}\.so[0-9.]{0,20})")
_RECORD = "tracelab.workload"  # the key of a workload record, which is kept as its program wrote it
_START = 6  # characters by which a secret is found; no secret is shorter


class Finder:
    """Finds any of many texts, each of at least six characters, in one pass."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for secret in secrets:
            self._by_start.setdefault(secret[:_START], []).append(secret)

    def found(self, text: str) -> list[str]:
        """Those that stand in `text`, the longest first."""
        known = self._by_start
        if not known:
            return []
        starts = {text[i : i + _START] for i in range(len(text) - _START + 1)}
        hits = {secret for start in starts & known.keys() for secret in known[start] if secret in text}
        return sorted(hits, key=lambda secret: (-len(secret), secret))


class Redactor:
    """Cleans texts by what they are; each function takes the bytes of a text, or None, and keeps what it found.

    `name` is for kernels, calls and ranges, `overhead` for what nsys calls its own work, `fact` for what the machine
    says of itself, `diagnostic` for nsys's messages.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._strong = Finder(secrets.strong)
        self._all = Finder(secrets.strong | secrets.weak)
        words = sorted(secrets.words, key=len, reverse=True)
        self._words = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b") if words else None
        self._changed: set[int] = set()
        self.name = self._function(self._name)
        self.overhead = self._function(lambda text: self._name(_LOADED.sub(_library, text)))
        self.fact = self._function(self._fact)
        self.diagnostic = self._function(lambda text: self._fact(clean_diagnostic(text)))

    @property
    def changed(self) -> int:
        """How many different texts were kept with something taken out."""
        return len(self._changed)

    def pair(self, says: str, name: bytes | None, value: bytes | None) -> str | None:
        """The value to keep of a row of a `setting` or `property` table; None if the row must go."""
        if name is None or value is None:
            return None
        key, text = name.decode("utf-8", "replace"), value.decode("utf-8", "replace")
        kept = (clean_setting if says == "setting" else clean_property)(key, text)
        return None if kept is None or self.secrets_in("fact", kept) else kept

    def secrets_in(self, says: str, text: str) -> list[str]:
        """The secrets that a text of a copy still holds, of those that its kind must not hold."""
        whole_words = self._words.findall(text) if self._words else []
        finder = self._all if says in ("name", "overhead") and _RECORD not in text else self._strong
        return [*finder.found(text), *whole_words]

    def _function(self, clean: Callable[[str], str]) -> Callable[[bytes | None], str | None]:
        def cleaned(value: bytes | None) -> str | None:
            if value is None:
                return None
            text = value.decode("utf-8", "replace")
            result = clean(text)
            if result != text:
                self._changed.add(hash(text))
            return result

        return lru_cache(maxsize=1 << 16)(cleaned)

    def _name(self, text: str) -> str:
        return self._clean(text, self._strong if _RECORD in text else self._all)

    def _fact(self, text: str) -> str:
        return self._clean(text, self._strong)

    def _clean(self, text: str, finder: Finder) -> str:
        secrets = finder.found(text)
        if secrets:
            text = re.sub("|".join(map(re.escape, secrets)), _mark, text)
        if self._words is not None:
            text = self._words.sub(_REMOVED, text)
        text = _PATH.sub(lambda match: match[0] if _ONNX_NODE.fullmatch(match[0]) else "(path)", text)
        return text.replace(_REMOVED, REMOVED)


def _mark(secret: re.Match[str]) -> str:
    return _REMOVED_PATH if secret[0].startswith("/") else _REMOVED


def _library(path: re.Match[str]) -> str:
    """Of a loaded library the name that every CUDA program loads; any other may name the user's work."""
    public = _PUBLIC_LIBRARY.fullmatch(path[0])
    return public[1] if public else "library"
