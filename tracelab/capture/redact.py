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
# Keys and tokens by their shape, whatever the environment says: no kernel has such a name, not even `hf_rms_norm_...`.
# What is sought ahead has a bound, or a long text of many starts would take forever.
_TAIL = r"(?=[A-Za-z_-]{0,200}[0-9])(?=[0-9_-]{0,200}[A-Za-z])[\w-]{16,}"
_KEY = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:hf_(?![a-z]{{2,}}_)|sk-|gh[oprsu]_|github_pat_|xox[abeoprs]-|glpat-){_TAIL}"
    r"|A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])|eyJ[\w-]{8,1000}(?:\.[\w-]{4,}){1,4}"
    r"|[Bb]earer\s{1,9}(?=[^0-9\s]{0,200}[0-9])(?=[^A-Za-z\s]{0,200}[A-Za-z])[\w.~+/=-]{16,})",
    re.ASCII,
)
_IN_MESSAGE = re.compile(r"\w+(?:[.-]\w+)*")  # a word or number that may be a value, or hold one as a number
_DIGITS = re.compile("[0-9]+")
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
        self._words = _whole_words(secrets.words)
        self._all_words = _whole_words(secrets.words | secrets.owners)
        self._values = secrets.values
        self._changed: set[int] = set()
        self.name = self._function(self._name)
        self.overhead = self._function(lambda text: self._name(_LOADED.sub(_library, text)))
        self.fact = self._function(self._fact)
        self.diagnostic = self._function(self._diagnostic)

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
        finder, words = self._sought(says, text)
        found = [*finder.found(text), *words.findall(text), *_KEY.findall(text)]
        if says == "diagnostic":
            found += filter(self._holds_value, _IN_MESSAGE.findall(text))
        return found

    def _sought(self, says: str, text: str) -> tuple[Finder, re.Pattern[str]]:
        """What a text of a kind must not hold: parts, and whole words."""
        if says == "diagnostic" or (says in ("name", "overhead") and _RECORD not in text):
            return self._all, self._all_words
        return self._strong, self._words

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
        return self._clean(text, "name")

    def _fact(self, text: str) -> str:
        return self._clean(text, "fact")

    def _diagnostic(self, text: str) -> str:
        text = self._clean(clean_diagnostic(text), "diagnostic")
        return _IN_MESSAGE.sub(lambda word: REMOVED if self._holds_value(word[0]) else word[0], text)

    def _holds_value(self, word: str) -> bool:
        return not self._values.isdisjoint([word, *_DIGITS.findall(word)])

    def _clean(self, text: str, says: str) -> str:
        finder, words = self._sought(says, text)
        secrets = finder.found(text)
        # In one pass, so that of a key no rest is left around a secret within it.
        sought = re.compile("|".join([*map(re.escape, secrets), _KEY.pattern]), re.ASCII) if secrets else _KEY
        text = words.sub(_REMOVED, sought.sub(_mark, text))
        text = _PATH.sub(lambda match: match[0] if _ONNX_NODE.fullmatch(match[0]) else "(path)", text)
        return text.replace(_REMOVED, REMOVED)


def _whole_words(words: Iterable[str]) -> re.Pattern[str]:
    longest_first = "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))
    # An underscore ends a word: ranges are named `acme_decode`.
    return re.compile(rf"(?<![^\W_])(?:{longest_first})(?![^\W_])" if longest_first else r"(?!)")


def _mark(secret: re.Match[str]) -> str:
    return _REMOVED_PATH if secret[0].startswith("/") else _REMOVED


def _library(path: re.Match[str]) -> str:
    """Of a loaded library the name that every CUDA program loads; any other may name the user's work."""
    public = _PUBLIC_LIBRARY.fullmatch(path[0])
    return public[1] if public else "library"
