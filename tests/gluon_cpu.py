"""Runs Gluon kernels on a CPU: what they compute and how their warp groups synchronise, not layouts or speed.

Triton has no interpreter for Gluon. Here a kernel module is executed with look-alikes of the `gl` functions it uses:
warp groups are threads; copies and wgmma groups begin when they are issued and end as late as they may, the copies at
random times, so that a wait that is missing shows as NaN or as a stale value; what a thread writes to shared memory is
seen by copies and wgmma only after its fence; a barrier that nobody completes fails the test instead of hanging it.
"""

import ast
import random
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 20.0
_here = threading.local()  # of each thread: program ids, wgmma in flight, writes not fenced, who else runs


class Barrier:
    """An mbarrier: a phase ends when all arrivals and all announced bytes have come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = self.pending = self.bytes = self.phase = 0

    def index(self, slot: Any) -> "Barrier":
        raise NotImplementedError

    def init(self, count: int) -> None:
        self.count = self.pending = count

    def add(self, arrivals: int, size: int) -> None:
        with self.changed:
            self.pending -= arrivals
            self.bytes += size
            assert self.pending >= 0, "more arrivals than the barrier was made for"
            if self.pending == 0 and self.bytes == 0:
                self.phase += 1
                self.pending = self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        time.sleep(random.random() * 2e-4)
        until = time.monotonic() + WAIT_S
        with self.changed:
            while (self.phase & 1) == parity:
                assert not _here.run.failed, "another warp group failed"
                assert time.monotonic() < until, "deadlock: a barrier was never completed"
                self.changed.wait(0.05)
        time.sleep(random.random() * 2e-4)


class Barriers:
    def __init__(self, slots: int) -> None:
        self.slots = [Barrier() for _ in range(slots)]

    def index(self, slot: Any) -> Barrier:
        return self.slots[int(slot)]


class Shared:
    """A view of shared memory. `seen` is what the asynchronous units read, `own` what threads wrote last."""

    def __init__(self, torch: Any, seen: Any) -> None:
        self.torch, self.seen = torch, seen
        self.dtype, self.shape = seen.dtype, list(seen.shape)

    def index(self, slot: Any) -> "Shared":
        return Shared(self.torch, self.seen[int(slot)])

    def permute(self, order: tuple[int, ...]) -> "Shared":
        return Shared(self.torch, self.seen.permute(*order))

    def slice(self, start: int, length: int, dim: int = 0) -> "Shared":
        return Shared(self.torch, self.seen.narrow(dim, start, length))

    def store(self, value: Any) -> None:
        assert value.dtype == self.dtype and list(value.shape) == self.shape
        self.seen.fill_(float("nan"))
        _here.unfenced.append((self.seen, value.clone()))


class Products:
    """A wgmma group in flight: `value` exists once it has ended."""

    def __init__(self, a: Any, b: Any, acc: Any, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc, self.value = a, b, acc, use_acc, None

    def end(self) -> None:
        a = (self.a.seen if isinstance(self.a, Shared) else self.a).float()
        before = self.acc.value if isinstance(self.acc, Products) else self.acc
        self.value = a @ self.b.seen.float() + (before if self.use_acc else 0.0)


class Pointer:
    def __init__(self, memory: Any, at: Any = 0) -> None:
        self.memory, self.at = memory, at
        self.dtype = types.SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.memory, self.at + offset)


class TensorMap:
    """Boxes of `box` elements of a matrix `shape` with rows `stride` apart; zeros beyond it."""

    def __init__(self, torch: Any, memory: Any, shape: list[int], stride: int, box: list[int]) -> None:
        self.torch, self.layout, self.box = torch, None, box
        self.matrix = torch.as_strided(memory, shape, [stride, 1])

    def read(self, row: int, column: int) -> Any:
        out = self.torch.zeros(self.box, dtype=self.matrix.dtype)
        found = self.matrix[row : row + self.box[0], column : column + self.box[1]]
        out[: found.shape[0], : found.shape[1]] = found
        return out


class _Run:
    """One block: its threads, and the first error of any of them."""

    def __init__(self) -> None:
        self.failed: list[BaseException] = []
        self.copies: list[threading.Thread] = []

    def thread(self, work: Callable[[], None], ids: tuple[int, ...], grid: tuple[int, ...]) -> threading.Thread:
        def guarded() -> None:
            _here.run, _here.ids, _here.grid, _here.flight, _here.unfenced = self, ids, grid, [], []
            try:
                work()
                assert not _here.flight, "the group ends with wgmma in flight"
            except BaseException as error:
                self.failed.append(error)

        return threading.Thread(target=guarded)


def load(torch: Any, *paths: Path) -> types.ModuleType:
    """The modules at `paths` as one, each after those it imports from; their Gluon functions are plain functions."""
    module = types.ModuleType(paths[-1].stem)
    module.__dict__.update(_names(torch))
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(tree, str(path), "exec"), module.__dict__)
    return module


def launch(kernel: Callable[..., None], grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run the blocks of `grid` one after the other; tensors among the arguments are passed as pointers."""
    passed = [Pointer(a.flatten()) if hasattr(a, "flatten") and hasattr(a, "numel") else a for a in arguments]
    for x in range(grid[0]):
        for y in range(grid[1]):
            for z in range(grid[2]):
                run = _Run()
                block = run.thread(lambda: kernel(*passed, **constants), (x, y, z), grid)
                block.start()
                block.join()
                for copy in run.copies:
                    copy.join()
                if run.failed:
                    raise run.failed[0]


def _names(torch: Any) -> dict[str, Any]:
    """What a kernel module imports."""
    return {
        "gluon": types.SimpleNamespace(jit=lambda fn=None, **_: fn if fn is not None else lambda inner: inner),
        "gl": _language(torch),
        "mbarrier": types.SimpleNamespace(
            MBarrierLayout=lambda: "mbarrier",
            init=lambda barrier, count: barrier.init(count),
            expect=lambda barrier, size: barrier.add(1, size),
            arrive=lambda barrier, count=1, pred=True: barrier.add(count, 0) if pred else None,
            wait=lambda barrier, parity: barrier.wait(int(parity)),
        ),
        "tma": types.SimpleNamespace(async_copy_global_to_shared=_copy),
        "fence_async_shared": _fence,
        "gdc_launch_dependents": lambda: None,
        "warpgroup_mma_init": lambda value: value,
        "warpgroup_mma": _multiply,
        "warpgroup_mma_wait": _wait,
    }


def _language(torch: Any) -> Any:
    """The functions of `gl`. Layouts are nothing, constexpr is its value, scalars are ints or 0-d tensors."""

    def tensor(value: Any) -> Any:
        return value if isinstance(value, torch.Tensor) else torch.tensor(value)

    def allocate(dtype: Any, shape: list[int], _: Any) -> Any:
        if dtype == torch.int64:
            return Barriers(shape[0]) if len(shape) == 2 else Barrier()
        return Shared(torch, torch.full(shape, float("nan"), dtype=dtype))

    def gl_load(pointer: Pointer, mask: Any = None, other: float = 0.0) -> Any:
        at = tensor(pointer.at)
        kept = torch.ones_like(at, dtype=torch.bool) if mask is None else mask.expand(at.shape)
        return torch.where(kept, pointer.memory[torch.where(kept, at, 0)], torch.tensor(other).to(pointer.memory.dtype))

    def gl_store(pointer: Pointer, value: Any, mask: Any) -> None:
        kept = mask.expand(pointer.at.shape)
        pointer.memory[pointer.at[kept]] = value[kept].to(pointer.memory.dtype)

    anything = lambda *_, **__: None  # noqa: E731
    return types.SimpleNamespace(
        constexpr=lambda value: value, tensor=object, float32=torch.float32, int64=torch.int64, static_range=range,
        program_id=lambda axis: torch.tensor(_here.ids[axis]), num_programs=lambda axis: torch.tensor(_here.grid[axis]),
        cdiv=lambda a, b: -(-a // b), minimum=lambda a, b: torch.minimum(tensor(a), tensor(b)),
        maximum=lambda a, b: torch.maximum(tensor(a), tensor(b)), exp2=torch.exp2,
        max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis),
        where=lambda c, a, b: torch.where(c, a, torch.tensor(b).to(a.dtype)),
        arange=lambda a, b, _=None: torch.arange(a, b),
        zeros=lambda shape, dtype, _=None: torch.zeros(shape, dtype=dtype),
        full=lambda shape, value, dtype, _=None: torch.full(shape, value, dtype=dtype), load=gl_load, store=gl_store,
        convert_layout=lambda x, _: x, allocate_shared_memory=allocate, warp_specialize=_specialise,
        thread_barrier=anything, BlockedLayout=anything, SliceLayout=anything, DotOperandLayout=anything,
        NVMMADistributedLayout=anything, NVMMASharedLayout=anything,
    )  # fmt: skip


def _specialise(groups: list[tuple[Callable[..., None], tuple[Any, ...]]], warps: list[int], _: list[int]) -> None:
    assert len(warps) == len(groups) - 1
    run, ids, grid = _here.run, _here.ids, _here.grid
    threads = [run.thread(lambda fn=fn, args=args: fn(*args), ids, grid) for fn, args in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _fence() -> None:
    for memory, value in _here.unfenced:
        memory.copy_(value)
    _here.unfenced.clear()


def _copy(box: TensorMap, place: list[Any], barrier: Barrier, out: Shared) -> None:
    """Bytes that arrive after a while; until then the chunk holds neither the old nor the new ones."""
    data = box.read(*(int(p) for p in place))
    assert list(data.shape) == out.shape
    out.seen.fill_(float("nan"))

    def arrive() -> None:
        time.sleep(random.random() * 2e-3)
        out.seen.copy_(data)
        barrier.add(0, -data.numel() * data.element_size())

    thread = threading.Thread(target=arrive)
    _here.run.copies.append(thread)
    thread.start()


def _multiply(a: Any, b: Shared, acc: Any, *, use_acc: bool = True, is_async: bool = False) -> Any:
    group = Products(a if isinstance(a, Shared) else a.clone(), b, acc, use_acc)
    _here.flight.append(group)
    if is_async:
        return group
    return _wait(0, [group])


def _wait(left: int, deps: list[Any]) -> Any:
    """Ends the oldest groups until `left` are in flight; of the others no value may be asked for."""
    while len(_here.flight) > left:
        _here.flight.pop(0).end()
    values = [d.value if isinstance(d, Products) else d for d in deps]
    assert all(v is not None for v in values), "a wgmma result is used before it was waited for"
    return values[0] if len(values) == 1 else tuple(values)
