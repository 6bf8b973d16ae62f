"""How split_kv is launched: bytes and grids by hand, merges of any number of slices, overlap of the two launches."""

from typing import Any

import pytest
from kernel_cpu import Deferred, kernel_on_cpu

torch, split_kv = Deferred("torch"), Deferred("split_kv")
kernel, planning = Deferred("_kernel"), Deferred("_split_plan")


def cpu() -> Any:
    return torch.device("cpu")


def test_bytes_and_flops_by_hand() -> None:
    # 131 072 tokens · 8 KV heads · 128 · 2 B = 268 435 456 for K, as much for V; q and o 2 · 32 · 128 · 2 B = 16 384.
    # FLOPs 2 · 2 · 131 072 · 32 · 128 = 2 147 483 648; 16 rows are executed for every 4 query heads.
    work = split_kv.work(1, 32, 8, 128, 131_072, 2)
    assert work.bytes == 536_870_912 + 16_384
    assert work.flops == 2_147_483_648
    assert work.executed_flops == 4 * work.flops
    assert split_kv.work(1, 32, 8, 128, 131_072, 2, page=16).bytes == work.bytes + 4 * 8192
    assert split_kv.work(3, 32, 8, 128, 1000, 2).bytes == 3 * split_kv.work(1, 32, 8, 128, 1000, 2).bytes


def test_grids_at_the_real_shape() -> None:
    # 8 KV heads × 16 slices = 128 blocks of 132 SMs; a batch of 2 halves the slices, one of 17 has 136 units and none
    def plan(ctx: int, batch: int = 1, **options: Any) -> Any:
        return split_kv.decode_plan(ctx, batch, 32, 8, 128, cpu(), **options)

    assert plan(131_072) == planning.SplitPlan(16, 8192)
    assert plan(8192) == planning.SplitPlan(16, 512)
    assert plan(4096) == planning.SplitPlan(1, 4096)
    # without the gate everything from two tiles on is split; 17 tiles are 9 slices of two, the last one half
    assert [plan(n, gate=0).splits for n in (0, 1, 64, 65, 1024, 1025, 4096)] == [1, 1, 1, 2, 16, 9, 16]
    assert plan(131_072, 2).splits == 8
    assert plan(131_072, 17).splits == 1
    assert plan(131_072, cap=split_kv.CAPS["fixed_cap"]) == planning.SplitPlan(8, 16_384)
    scratch = split_kv.Scratch.of(plan(131_072), 1, 32, 8, 128, cpu())
    # 8 · 16 · 4 rows of 128 + 2 floats = 266 240 B: 0.05 % of the cache, written once and read once
    assert sum(part.numel() * 4 for part in (scratch.m, scratch.l, scratch.acc)) == 266_240


@pytest.mark.parametrize(("splits", "columns"), [(3, 128), (17, 128), (40, 64), (132, 16)])
def test_a_merge_of_any_number_of_slices(splits: int, columns: int) -> None:
    # the second launch alone, on partials of two query heads of one KV head; slice 1 is empty. From 33 slices on a
    # block merges fewer columns, so that its partials fit its registers.
    _, launching = kernel_on_cpu("_split_kv_launch")
    constants = launching.merge_constants(splits, 2, 128, pdl=False)
    assert constants["COLUMNS"] == columns
    m, total, acc = (kernel.random(part, splits, 2, *size, device=cpu(), dtype=torch.float32)
                     for part, size in enumerate([(), (), (128,)]))  # fmt: skip
    m, total = 4 * m, total.abs() + 1
    m[1], total[1], acc[1] = -1e30, 0.0, 0.0
    out = kernel.poisoned(2, 128, device=cpu(), dtype=torch.float32)
    launching.split_kv_merge[(2, 128 // columns)](m, total, acc, out, splits, **constants)
    weight = torch.exp2(m.double() - m.amax(0).double())
    want = (weight.unsqueeze(2) * acc).sum(0) / (weight * total).sum(0).unsqueeze(1)
    assert kernel.relative_l2(out, want) < 2e-6
    assert kernel.relative_l2(out, acc.sum(0) / total.sum(0).unsqueeze(1)) > 1e-2  # negative control: no rescale


def test_launches_overlap_only_where_the_gpu_can() -> None:
    # split path: in the interpreter neither kernel may wait for, or release, another launch; nor below sm_90
    _, launching = kernel_on_cpu("_split_kv_launch")
    device, seen = torch.device("cuda", 0), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "INTERPRETED", False)
        for capability in ((8, 9), (9, 0), (10, 0)):
            launching.dependent_launches.cache_clear()
            patch.setattr(torch.cuda, "get_device_capability", lambda _device, it=capability: it)
            seen[capability] = launching.dependent_launches(device)
    launching.dependent_launches.cache_clear()
    assert seen == {(8, 9): False, (9, 0): True, (10, 0): True}
    assert not launching.dependent_launches(cpu())
    assert not launching.dependent_launches(device)
