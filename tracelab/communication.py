"""Communication of a device's steps: which GPU work it is, and how much of it other work of the same step hides."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelab.families import classify
from tracelab.intervals import shift_apart, union
from tracelab.kernel_names import shorten
from tracelab.trace import I64, Bool, Trace
from tracelab.view import View

PEER_COPY = "peer copy"
_FAMILY = "communication"
_PEER_COPY_OP = "memcpy PtoP"  # as the loader names copies from one GPU to another

_ARGUMENTS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|[<(].*")
_COLLECTIVES = (
    (re.compile(r"deep_ep.*dispatch", re.I), "DeepEP dispatch"),
    (re.compile(r"deep_ep.*combine", re.I), "DeepEP combine"),
    (re.compile(r"all_?reduce|cross_device_reduce", re.I), "AllReduce"),
    (re.compile(r"all_?gather", re.I), "AllGather"),
    (re.compile(r"reduce_?scatter", re.I), "ReduceScatter"),
    (re.compile(r"all_?to_?all|moea2a", re.I), "AllToAll"),
    (re.compile(r"broadcast", re.I), "Broadcast"),
    (re.compile(r"send_?recv", re.I), "SendRecv"),
    (re.compile(r"nccl.*_reduce_", re.I), "Reduce"),
    (re.compile(r"nvshmem", re.I), "NVSHMEM"),
)
_LIBRARIES = ("DeepEP", "NVSHMEM")


@dataclass(frozen=True)
class Communication:
    """Communication of the used steps by step and start, one entry per GPU op.

    `rows` are rows of `Ops`, `step` the used step (0 …). `union_ns` is the time an op adds to the union of those of its
    step that began before it: an instant of two counts for the first. `exposed_ns` is the part of that in which no
    other work of the step ran; the rest is hidden. So both add up to the union, to the nanosecond.
    """

    rows: I64
    step: I64
    union_ns: I64
    exposed_ns: I64

    def __len__(self) -> int:
        return len(self.rows)


def communication(view: View) -> Communication:
    """The communication of the used steps of `view`; without entries where none ran."""
    rows, step = view.ops, view.op_step
    mine = is_communication(view.trace, rows)
    if not mine.any():
        none = np.zeros(0, np.int64)
        return Communication(none, none, none, none)
    start, end = shift_apart(step, view.trace.ops.start[rows], view.trace.ops.end[rows])
    others = union(start[~mine], end[~mine])
    reach = np.concatenate((start[:1] - 1, np.maximum.accumulate(end[mine])))[: int(mine.sum())]
    begin = np.maximum(start[mine], reach)
    union_ns = np.maximum(end[mine] - begin, 0)
    hidden = others.covered(begin, begin + union_ns)
    return Communication(rows[mine], step[mine], union_ns, union_ns - hidden)


def is_communication(trace: Trace, rows: I64) -> Bool:
    """Which op rows are communication: kernels of that family, and copies from one GPU to another."""
    codes, names = _names(trace, rows)
    families = classify(names).families
    talks = np.zeros(len(trace.names), bool)
    talks[codes] = [family == _FAMILY or name == _PEER_COPY_OP for name, family in zip(names, families, strict=True)]
    return talks[trace.ops.name[rows]]


def collectives(trace: Trace, rows: I64) -> tuple[I64, Sequence[str]]:
    """Number of the collective of each op row, and the names of those numbers, sorted."""
    codes, names = _names(trace, rows)
    said = [collective(name) for name in names]
    distinct = sorted(set(said))
    number = np.zeros(len(trace.names), np.int64)
    number[codes] = [distinct.index(name) for name in said]
    return number[trace.ops.name[rows]], distinct


def _names(trace: Trace, rows: I64) -> tuple[I64, Sequence[str]]:
    """Codes of the distinct names of the op rows, and the names; by counting, since there are few of them."""
    codes = np.flatnonzero(np.bincount(trace.ops.name[rows], minlength=len(trace.names)))
    return codes, [trace.names[int(code)] for code in codes]


def collective(name: str) -> str:
    """What a communication kernel does: `AllReduce` of NCCL, `custom AllReduce` of others; else its short name.

    >>> collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'AllReduce'
    """
    if name == _PEER_COPY_OP:
        return PEER_COPY
    bare = _ARGUMENTS.sub("", name)
    found = next((label for pattern, label in _COLLECTIVES if pattern.search(bare)), None)
    if found is None:
        return shorten(name)
    return found if "nccl" in bare.lower() or found.startswith(_LIBRARIES) else f"custom {found}"


def sums(group: I64, values: I64, groups: int) -> I64:
    """Sum of `values` in each group 0 … `groups` − 1, in whole numbers."""
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total
