"""The sm_90 kernel of attention with threads for its warp groups: barriers and rings; then what breaks them."""

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gluon_cpu
import pytest
from kernel_cpu import torch_or_skip

SOURCE = Path(__file__).resolve().parents[1] / "kernels" / "_attention_hopper.py"
WRONG = 1e-2


class Map(gluon_cpu.TensorMap):
    """A tensor map over all rows of a [rows, 128] matrix."""

    def __init__(self, torch: Any, matrix: Any, rows: int) -> None:
        super().__init__(torch, matrix, list(matrix.shape), matrix.shape[1], [rows, matrix.shape[1]])
        self.dtype = matrix.dtype


class Stores:
    """Bulk copies to memory: they read shared memory late; a wait of the same thread waits for its own."""

    def __init__(self) -> None:
        self.mine = threading.local()

    def begin(self, target: Map, place: list[Any], source: gluon_cpu.Shared) -> None:
        def copy() -> None:
            time.sleep(2e-3)
            target.matrix[int(place[0]) : int(place[0]) + source.shape[0]] = source.seen

        thread = threading.Thread(target=copy)
        thread.start()
        self.mine.__dict__.setdefault("threads", []).append(thread)

    def wait(self, _: int) -> None:
        for thread in self.mine.__dict__.pop("threads", []):
            thread.join()


def error(edit: Callable[[str], str], *, heads: int, tiles: int, causal: bool, blocks: int) -> float:
    """Relative L2 error of the kernel, its source edited, on `tiles` tiles a head."""
    torch = torch_or_skip()
    generator = torch.Generator().manual_seed(heads + tiles)
    size = (heads * tiles * 128, 128)
    q, k, v = (torch.randn(*size, generator=generator).bfloat16() for _ in range(3))
    out = torch.full(size, float("nan"), dtype=torch.bfloat16)
    maps = [Map(torch, x, rows) for x, rows in ((q, 64), (k, 128), (v, 128), (out, 64))]
    kernel = _edited(torch, edit).hopper_kernel
    arguments = (heads * tiles, tiles, math.log2(math.e) / math.sqrt(128), causal)
    gluon_cpu.launch(kernel, (blocks, 1, 1), *maps, *arguments)
    q, k, v = (x.double().view(heads, -1, 128) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).flatten(0, 1)
    wrong = float((out.double() - want).norm() / want.norm())
    return wrong if math.isfinite(wrong) else math.inf


def _edited(torch: Any, edit: Callable[[str], str]) -> Any:
    """The kernel's module with `edit` done to its text."""

    class Text:
        stem = SOURCE.stem

        def read_text(self, encoding: str) -> str:
            return edit(SOURCE.read_text(encoding=encoding))

    module = gluon_cpu.load(torch, Text())  # type: ignore[arg-type]
    module.__dict__["pause"] = lambda: time.sleep(1e-2)  # for an edit that needs one
    stores = Stores()
    module.tma.async_copy_shared_to_global, module.tma.store_wait = stores.begin, stores.wait
    return module


def same(text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("heads", "tiles", "causal", "blocks"),
    [
        (1, 1, False, 1),  # one tile of keys: the loop is never entered
        (2, 2, False, 1),  # a block does all four query tiles: rings and phases go on from tile to tile
        (2, 3, False, 4),  # two blocks have two tiles, two have one
        (2, 3, True, 6),  # a block a tile, as launched with a causal mask: 3, 2 and 1 tiles of keys
        (1, 3, True, 1),  # one block with tiles of 3, 2 and 1 tiles of keys
    ],
)
def test_against_float64(heads: int, tiles: int, causal: bool, blocks: int) -> None:
    assert error(same, heads=heads, tiles=tiles, causal=causal, blocks=blocks) <= 1e-2


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert text.count(old) == 1
        return text.replace(old, new)

    return edit


def test_without_the_rescale_the_result_is_wrong() -> None:
    """Negative control: sums are not multiplied by exp2(m_old − m_new)."""
    edit = replaced("    shrink = gl.exp2(m - new)\n", "    shrink = gl.exp2(m - m)\n")
    assert error(edit, heads=1, tiles=3, causal=False, blocks=1) > WRONG


def test_one_key_of_the_future_makes_the_result_wrong() -> None:
    """Negative control: the causal mask admits the key after the query's own."""
    edit = replaced("columns[None, :] <= rows[:, None]", "columns[None, :] <= rows[:, None] + 1")
    assert error(edit, heads=1, tiles=1, causal=True, blocks=1) > WRONG


def test_values_released_before_their_product_ends_are_overwritten() -> None:
    """Negative control of the ring: the copy of a later tile of V lands while the product still reads the buffer."""
    wait = "            acc, p, shrink, total = warpgroup_mma_wait(0, deps=(acc, next_p, shrink, total))\n"
    release = "            _release(values, n)\n            n += 1\n"
    early = replaced(
        wait + release, "            _release(values, n)\n            pause()\n" + wait + "            n += 1\n"
    )

    assert error(early, heads=1, tiles=5, causal=False, blocks=1) > WRONG


def test_a_barrier_that_expects_one_arrival_too_many_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the emulation: what would hang the GPU fails."""
    monkeypatch.setattr(gluon_cpu, "WAIT_S", 1.0)
    edit = replaced("keys = _ring(K, STAGES, TILE, 2)", "keys = _ring(K, STAGES, TILE, 3)")
    with pytest.raises(AssertionError, match="deadlock"):
        error(edit, heads=1, tiles=3, causal=False, blocks=1)
