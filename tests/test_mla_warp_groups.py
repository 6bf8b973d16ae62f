"""The warp-specialised kernels of mla, warp groups as threads: what they compute, and that no wait is missing."""

import math
from pathlib import Path
from typing import Any

import gluon_cpu
import pytest
from kernel_cpu import torch_or_skip
from source_tree import ROOT

FILES = [ROOT / "kernels" / f"_mla_{part}.py" for part in ("ring", "many", "few")]
SCALE = 192**-0.5


def specialised(
    torch: Any, paths: list[Path], name: str, heads: int, length: int, splits: int, *, batch: int = 1,
    on_device: bool = False,
) -> float:  # fmt: skip
    """Relative error of a warp-specialised kernel run on threads, in bf16 at 512 + 64; rows of 584 elements."""
    module = gluon_cpu.load(torch, *paths)
    block, ring = (64, 9) if name == "mla_many_heads" else (16, 11) if heads <= 32 else (32, 8)
    capacity, stride = length + 70, 584
    generator = torch.Generator().manual_seed(length)
    query = torch.randn(batch * heads, 576, generator=generator).bfloat16()
    cache = torch.full((batch, capacity, stride), math.nan, dtype=torch.bfloat16)
    cache[:, :length, :576] = torch.randn(batch, length, 576, generator=generator)
    part, stats = (
        torch.full((batch * heads * splits * 512,), math.nan),
        torch.full((batch * heads * splits * 2,), math.nan),
    )
    matrix = [batch * capacity, 576]
    maps = [gluon_cpu.TensorMap(torch, query.flatten(), list(query.shape), 576, [block, width]) for width in (128, 64)]
    maps += [gluon_cpu.TensorMap(torch, cache.flatten(), matrix, stride, [64, width]) for width in (128, 64)]
    gluon_cpu.launch(
        getattr(module, name), (-(-heads // block), splits, batch), *maps, cache,
        torch.full((batch,), length, dtype=torch.int32), part, stats, 0 if on_device else length, heads, capacity,
        stride, SCALE * math.log2(math.e), BLOCK_HEADS=block, RING=ring, ON_DEVICE=on_device,
    )  # fmt: skip
    part, stats = part.view(-1, splits, 512), stats.view(-1, splits, 2)
    weight = torch.exp2(stats[..., 0] - stats[..., 0].amax(1, keepdim=True))
    got = (weight[..., None] * part).sum(1) / (weight * stats[..., 1]).sum(1, keepdim=True)
    keys = cache[:, :length, :576].double()
    want = ((query.view(batch, heads, 576).double() @ keys.transpose(1, 2) * SCALE).softmax(2) @ keys[..., :512]).view(
        -1, 512
    )
    error = float((got - want).norm() / want.norm())
    return error if math.isfinite(error) else math.inf


@pytest.mark.parametrize(
    ("name", "heads", "length", "splits", "batch", "on_device"),
    [
        ("mla_many_heads", 96, 64 * 7, 1, 1, False),  # seven whole tiles: the ring of 9 chunks comes round three times
        ("mla_many_heads", 70, 64 * 5 + 1, 2, 2, True),  # two blocks of heads, a tile of one token
        ("mla_many_heads", 10, 100, 5, 1, False),  # three slices are empty
        ("mla_few_heads", 12, 64 * 9 + 5, 2, 1, False),
        ("mla_few_heads", 17, 64 * 3 - 1, 2, 2, True),
        ("mla_few_heads", 8, 1, 3, 1, False),
        ("mla_few_heads", 40, 64 * 5 + 7, 2, 1, False),  # two blocks of 32 heads, and a ring of 8: two tiles
    ],
)
def test_warp_groups_compute_the_same(
    name: str, heads: int, length: int, splits: int, batch: int, on_device: bool
) -> None:
    torch = torch_or_skip()
    assert specialised(torch, FILES, name, heads, length, splits, batch=batch, on_device=on_device) <= 1e-2


@pytest.mark.parametrize(
    ("length", "splits"), [(131_072, 132), (131_072, 44), (64 * 7 + 1, 3), (100, 5), (64, 1), (0, 2)]
)
def test_slices_cover_every_token_once_and_differ_by_a_tile(length: int, splits: int) -> None:
    """Whole tiles but for the end of the context; an empty slice begins where it would, and reports one tile."""
    torch = torch_or_skip()
    module = gluon_cpu.load(torch, *FILES)
    found: list[tuple[int, ...]] = []

    def kernel() -> None:
        found.append(tuple(int(x) for x in module.slice_of_block(None, torch.tensor(length), False)))

    gluon_cpu.launch(kernel, (1, splits, 1))
    ends = [begin + count for begin, count, _ in found]
    assert [begin for begin, _, _ in found] == [0, *ends[:-1]] and ends[-1] == length
    assert all(begin % 64 == 0 for begin, _, _ in found)
    tiles = [-(-count // 64) for _, count, _ in found]
    assert max(tiles) - min(tiles) <= 1
    assert [blocks for _, _, blocks in found] == [max(n, 1) for n in tiles]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("mla_many_heads", "mbarrier.wait(c_full.index(place % RING), (place // RING) & 1)", "pass"),
        ("mla_many_heads", "warpgroup_mma_wait(5, [a0, a1, p])", "warpgroup_mma_wait(7, [a0, a1, p])"),
        ("mla_many_heads", "mbarrier.wait(rope_empty.index(slot), ((t // ROPES) & 1) ^ 1)", "pass"),
        ("mla_few_heads", "        fence_async_shared()\n        gl.thread_barrier()\n        begun", "        begun"),
        ("mla_few_heads", "sums[j] * keep", "sums[j]"),
    ],
)
def test_negative_control_of_the_warp_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str
) -> None:
    """Without a wait, a fence or the rescale of the sums the result is wrong, or the barriers notice.

    Copies arrive at random times, so that a missing wait need not show at once.
    """
    torch = torch_or_skip()
    paths, found = [], 0
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        found += text.count(right)
        paths.append(tmp_path / path.name)
        paths[-1].write_text(text.replace(right, wrong), encoding="utf-8")
    assert found == 1
    monkeypatch.setattr(gluon_cpu, "WAIT_S", 1.0)

    def goes_wrong() -> bool:
        try:
            return specialised(torch, paths, name, 12, 64 * 6, 1) > 1e-2
        except AssertionError:
            return True

    assert any(goes_wrong() for _ in range(8))
