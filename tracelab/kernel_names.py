"""Short names of kernels: what distinguishes a kernel, without the noise of demangled C++.

Names come from the traced program, so control characters (terminal escapes, line breaks, bidirectional marks) are
written as escapes and never reach a terminal raw.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

ELLIPSIS = "…"

_NOISE = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|\(anonymous class\)::")
_CAST = re.compile(r"\((?:(?:un)?signed )?(?:int|bool|long|long long|char|short)\)(?=[-\d])")
# Parts that every kernel of a library shares, which would fill a narrow column.
_LIBRARY_PARTS = (
    (re.compile(r"^cudnn_generated_fort_native_(\w+?)(?:_cga1x1x1)?(?:_kernel\d+_\d+)?$"), r"cudnn_\1"),
    (re.compile(r"_execute(_split_k)?_kernel_?(?:_5x_cublas|_trt)$"), r"\1"),
)
_OPEN, _CLOSE = "<([{", ">)]}"
# Base names that say nothing without what they are instantiated with, or without their namespace.
_GENERIC = {"Kernel", "Kernel2", "kernel", "device_kernel", "_kernel_agent", "run", "static_kernel", "main_kernel"}
_WRAPPERS = re.compile(r"^(enable_\w+|integral_constant|bool_constant|array|tuple|void|const)$")
# What an elementwise, reduction or foreach kernel of torch computes, the surest pattern first.
_FUNCTORS = (
    re.compile(r"(?<![\w:])(?:\w+::)*(?!gpu_kernel|elementwise)(\w+?)_kernel(?:_cuda|_impl)?[<(]"),
    re.compile(r"(\w+?)(?:CUDA)?KernelImpl[<(]"),
    re.compile(r"\blaunch_(\w+)[<(]"),
    re.compile(r"binary_internal::(\w+)Functor"),
    re.compile(r"CUDAFunctor(?:OnSelf)?_(\w+)"),
    re.compile(r"\bstd::(plus|minus|multiplies|divides|negate)\b"),
    re.compile(r"(\w+?)Ops<"),
    re.compile(r"(\w+?)_functor\b"),
    re.compile(r"Functor<[^<>]*>, (?:\w+::)*([A-Z]\w*)<"),
    re.compile(r"(\w+?)Functor\b"),
)
_COMPUTES_FUNCTOR = re.compile(r"elementwise|reduce_kernel|multi_tensor_apply|act_and_mul|scan_|index_kernel|bin_bcast")


def escape(text: str) -> str:
    """The text with every character that is not printable written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shorten(name: str, width: int | None = None) -> str:
    """A short name for one kernel, at most `width` characters (None: as long as it needs to be).

    >>> shorten("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int, T2)")
    'vectorized_elementwise_kernel<add>'
    """
    return cut(_brief(name), width)


def base_name(name: str) -> str:
    """The name without return type, namespaces, template arguments and parameters: nsys's short name.

    >>> base_name("void cutlass::Kernel<cutlass_80_tensorop_gemm>(Params)")
    'Kernel'
    """
    return _split(name)[0].rpartition("::")[2]


_HEAD_PART = 5  # of a name cut towards its tail, the first fifth stays: enough to know the library


def shorten_all(names: Sequence[str], width: int | None = None) -> list[str]:
    """Short names in the same order; different names stay different, whatever their order (`width` at least 8)."""
    found: dict[str, str] = {}
    pending = sorted(set(names))
    for level in (_brief, _with_wrapper, _with_arguments, escape):
        texts = {name: level(name) for name in pending}
        taken = Counter(texts.values()) + Counter(found.values())
        found |= {name: text for name, text in texts.items() if taken[text] == 1}
        pending = [name for name in pending if name not in found]
    found |= {name: escape(name) for name in pending}
    fitted = _fitted(found, width)
    return [fitted[name] for name in names]


def cut(text: str, width: int | None) -> str:
    """The text cut in the middle to `width` characters, keeping the tail where sizes and variants stand."""
    if width is None or len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def _fitted(texts: dict[str, str], width: int | None) -> dict[str, str]:
    fitted = {name: cut(text, width) for name, text in texts.items()}
    groups: dict[str, list[str]] = defaultdict(list)
    for name, text in fitted.items():
        groups[text].append(name)
    for group in groups.values():
        if len(group) > 1 and width is not None:
            fitted |= _told_apart({name: texts[name] for name in group}, width)
    return _numbered(fitted, width)


def _told_apart(texts: dict[str, str], width: int) -> dict[str, str]:
    """Texts that the middle cut makes equal: with a longer tail, else from where they begin to differ."""
    tail = width - 2 - width // _HEAD_PART
    longer = {name: text[: width - 1 - tail] + ELLIPSIS + text[-tail:] for name, text in texts.items()}
    return longer if len(set(longer.values())) == len(texts) else _cut_at_difference(texts, width)


def _cut_at_difference(texts: dict[str, str], width: int) -> dict[str, str]:
    """Texts that the middle cut makes equal, each shown from where they begin to differ."""
    first, last = min(texts.values()), max(texts.values())
    differ = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    head = width // 3
    start = max(head, differ - 2)
    return {name: _shown_from(text, head, start, width) for name, text in texts.items()}


def _shown_from(text: str, head: int, start: int, width: int) -> str:
    rest = text[start:]
    room = width - head - 1
    return text[:head] + ELLIPSIS + (rest if len(rest) <= room else rest[: room - 1] + ELLIPSIS)


def _numbered(texts: dict[str, str], width: int | None) -> dict[str, str]:
    """The last resort: equal texts get a number."""
    result: dict[str, str] = {}
    taken = set(texts.values())
    used: set[str] = set()
    for name in sorted(texts):
        text, number = texts[name], 1
        while text in used or (number > 1 and text in taken):
            number += 1
            suffix = f"~{number}"
            text = cut(texts[name], None if width is None else width - len(suffix)) + suffix
        used.add(text)
        result[name] = text
    return result


def _brief(name: str) -> str:
    text = _named(name, _tag)
    for pattern, replacement in _LIBRARY_PARTS:
        text = pattern.sub(replacement, text)
    return text


def _with_wrapper(name: str) -> str:
    """Tells apart what the same operation is wrapped in, such as BinaryFunctor and AUnaryFunctor."""
    return _named(name, lambda base, args: _join((*_wrapper(args), _tag(base, args))))


def _with_arguments(name: str) -> str:
    return _named(name, lambda _, args: re.sub(r"(?:\w+::)+", "", args).replace(", ", ","))


def _named(name: str, describe: Callable[[str, str], str]) -> str:
    base, args = _split(escape(name))
    text = describe(base, args) if args else ""
    return f"{base}<{text}>" if text else base


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _wrapper(args: str) -> tuple[str, ...]:
    found = re.search(r"(\w+)Functor<", args)
    return (found.group(1),) if found else ()


def _tag(base: str, args: str) -> str:
    """What this instance does, from its template arguments; empty if the base name says enough."""
    if _COMPUTES_FUNCTOR.search(base):
        hits = (pattern.search(args) for pattern in _FUNCTORS)
        return next((hit.group(1).strip("_").removesuffix("Functor") for hit in hits if hit), "")
    return _first_class(args) if base.rpartition("::")[2] in _GENERIC else ""


def _first_class(args: str) -> str:
    """The first template argument that is a class or function of its own: `cutlass_80_…`, `FlashAttnFwdSm90`."""
    for word in re.findall(r"[A-Za-z_]\w*(?:::\w+)*", args):
        leaf = word.rpartition("::")[2]
        if len(leaf) > 6 and not _WRAPPERS.match(leaf) and not leaf.startswith(("__nv", "unsigned")):
            return str(leaf)
    return ""


def _split(name: str) -> tuple[str, str]:
    """Base name without namespace, return type and parameters, and the text of its template arguments."""
    text = _CAST.sub("", _NOISE.sub("", name)).strip()
    text = _without_tail(text, "(", ")")[0]
    path, args = _without_tail(text, "<", ">")
    parts = path[_last_top_level(path, " ") :].split("::") if path else [name]
    if not parts[-1]:
        return name, ""
    base = "::".join(parts[-2:]) if parts[-1] in _GENERIC and len(parts) > 1 and not args else parts[-1]
    if parts[-1] == "kernel" and len(parts) > 1:
        base = "::".join(parts[-2:])
    return base, args


def _without_tail(text: str, opening: str, closing: str) -> tuple[str, str]:
    """Split a balanced bracket at the end off `text`: the text before it, and its inside."""
    if not text.endswith(closing):
        return text, ""
    depth = 0
    for i in range(len(text) - 1, 0, -1):
        depth += (text[i] in _CLOSE and text[i - 1 : i + 1] != "->") - (text[i] in _OPEN)
        if depth == 0:
            return (text[:i], text[i + 1 : -1]) if text[i] == opening else (text, "")
    return text, ""


def _last_top_level(text: str, separator: str) -> int:
    """Index after the last separator outside all brackets; 0 if there is none."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] in _CLOSE) - (text[i] in _OPEN)
        if depth == 0 and text[i] == separator:
            return i + 1
    return 0
