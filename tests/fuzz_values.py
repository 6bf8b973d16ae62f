"""Values that no trace should hold, and names chosen to do harm: what the fuzzer writes into real files."""

import json
import random

INTS = (
    0, 1, -1, 2, 255, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**59, 2**60, -(2**60), 2**62, 2**63 - 1,
    -(2**63), -(2**63) + 1,
)  # fmt: skip
FLOATS = (0.5, -0.0, 1e300, -1e300, 5e-324, 9.3e18, float("inf"), float("-inf"))
TEXTS = (
    "", " ", "0", "-1", "nan", "1e999", "²", "١٢", "0x10", "true", "step 0", "decode_step 3", "a/b/c", "///", "#", "..",
    "../../etc/passwd", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "one\ntwo\r\nthree\tfour", "\0nul\0",
    "\x7f", "\u202egnp.exe\u202c", "\ufeff\u200b\u2028", "𝕏é漢字", "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "| a | b |\n|---|---|", "``` `x` ```", "[link](javascript:alert(1))", "[bold red]rich[/bold red]", "&lt;b&gt;",
    "'; DROP TABLE StringIds; --", '"quoted"[bracket]`tick`', "%s %n {0} {x!r} $(id) ${HOME}", "((((<<<<[[[[{{{{",
    "void a::b<c<d>, (anonymous namespace)::e>(f)", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(", "1" * 5000,
    "void f<" * 3000, "((int)-1)" * 400, "L1/" * 400,
)  # fmt: skip
LONG = "x\x1b" * 500_000  # a megabyte
BYTES = (b"\x80\xff\xfe", b"\xed\xa0\x80", b"a\x00b", b"\xc3", b"\xf4\x90\x80\x80", bytes(range(256)))
IDENTIFIERS = (
    'a"b', "a'b; DROP TABLE x; --", "a\nb", "\x1b[2J", "[x]", "`x`", "%s", "é漢", " ", "x" * 3000, "select", "../x",
    "<b>", "CUPTI_ACTIVITY_KIND_FUTURE", "cupti_activity_kind_kernel_2",
)  # fmt: skip


def integer(rng: random.Random) -> int:
    """An extreme integer, or any of 64 bits."""
    return rng.choice(INTS) if rng.random() < 0.9 else rng.getrandbits(64) - 2**63


def text(rng: random.Random) -> str:
    """A hostile text."""
    return rng.choice(TEXTS)


def raw(rng: random.Random) -> bytes:
    """Bytes that are no UTF-8, or text as bytes."""
    return rng.choice(BYTES) if rng.random() < 0.7 else text(rng).encode("utf-8", "replace")


def scalar(rng: random.Random) -> int | float | str | bytes | None:
    """A value of any type that SQLite knows."""
    kind = rng.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.choice(FLOATS)
    if kind == 2:
        return text(rng)
    return raw(rng) if kind == 3 else integer(rng)


_NESTED = ("[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000)


def json_value(rng: random.Random) -> str:
    """One JSON value as text: wrong types, numbers beyond every limit, lone surrogates, deep nesting."""
    plain = (
        "null", "true", "[]", "{}", "[[1]]", '{"x": 1}', "NaN", "-Infinity", "1e400", "-1e400", "1e-400", "0.5", "-0",
        "9" * 400, "9" * 5000, '"\\ud800"', '"\\u0000\\u001b[31m"', '[1, "a", null]', "0", "-1", "1e15", "1e300",
    )  # fmt: skip
    kind = rng.random()
    if kind < 0.7:
        return rng.choice(plain)
    if kind < 0.8:
        return str(integer(rng))
    return json.dumps(text(rng)) if kind < 0.97 else rng.choice(_NESTED)


_RECORD_KEYS = (
    "tracelab.workload", "name", "model", "params", "active_params", "dtype", "batch", "ctx", "tensor_parallel",
    "tokens_per_step", "bytes_per_step", "flops_per_step", "phases", "variant",
)  # fmt: skip


def workload_record(rng: random.Random) -> str:
    """A workload record whose values are not what they should be."""
    pairs = {key: json_value(rng) for key in rng.sample(_RECORD_KEYS, rng.randint(1, 5))}
    pairs["tracelab.workload"] = "1" if rng.random() < 0.8 else json_value(rng)
    if rng.random() < 0.4:
        inner = f'{{"bytes": {json_value(rng)}, "flops": {json_value(rng)}}}'
        pairs["phases"] = f'{{{json.dumps(text(rng))}: {rng.choice((inner, json_value(rng)))}, "attn": {inner}}}'
    return "{" + ", ".join(f'"{key}": {value}' for key, value in pairs.items()) + "}"


def facts_json(rng: random.Random) -> str:
    """The GPU's facts as JSON, wrong in one place or more."""
    keys = ("name", "smCount", "numMultiprocessors", "memoryBandwidth")
    entry = "{" + ", ".join(f'"{key}": {json_value(rng)}' for key in rng.sample(keys, rng.randint(0, 4))) + "}"
    return rng.choice((f"[{entry}]", f"[{entry}, {json_value(rng)}]", entry, json_value(rng)))
