"""Theoretical occupancy of a launch, vectorised over launches.

The formula agrees with NVIDIA's `cuda_occupancy.h` (CUDA 13.0) on 200 000 random configurations of compute
capabilities 7.0 to 12.0. Clusters, barriers and the carve-out chosen at run time are not modelled.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracelab.gpus import sm_defaults

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LIMITER_NAMES = ("registers", "shared-memory", "warps", "blocks")

_THREADS_PER_BLOCK_MAX = 1024  # CUDA C Programming Guide, technical specifications, every compute capability
_SUB_PARTITIONS = 4  # warp schedulers of one multiprocessor, each with a quarter of the registers
_REGISTER_UNIT = 256  # registers are allocated to a warp in units of 256
_REGISTERS_PER_SM = 65536  # CUDA C Programming Guide, every compute capability from 5.0
_THREADS_PER_WARP = 32
_SHARED_RESERVE_BYTES = 1024  # kept by the driver for each block from compute capability 8.0
_SHARED_UNIT_BYTES = 128  # allocation unit from compute capability 8.0
_SHARED_UNIT_BYTES_BEFORE_8 = 256
_UNDERFILL = 0.9  # a grid that reaches fewer than 90 % of the SMs underfills the GPU
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SmLimits:
    """What one multiprocessor holds, and how many there are. Shared memory in bytes."""

    compute_major: int
    compute_minor: int
    registers_per_sm: int
    registers_per_block: int
    warps_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    sm_count: int
    threads_per_warp: int

    @classmethod
    def with_defaults(
        cls,
        compute_major: int | None,
        compute_minor: int | None,
        *,
        sm_count: int | None,
        registers_per_sm: int | None = None,
        registers_per_block: int | None = None,
        warps_per_sm: int | None = None,
        blocks_per_sm: int | None = None,
        shared_per_sm: int | None = None,
        threads_per_warp: int | None = None,
    ) -> "SmLimits | None":
        """Limits with missing or zero values filled from the compute capability.

        None if a value is missing that has no default: the capability, the SM count, or a limit of an unknown chip.
        """
        if not compute_major or compute_minor is None or not sm_count:
            return None
        known = sm_defaults(compute_major, compute_minor)
        warps = warps_per_sm or (known.warps if known else 0)
        blocks = blocks_per_sm or (known.blocks if known else 0)
        shared = shared_per_sm or (known.shared_bytes if known else 0)
        if not (warps and blocks and shared):
            return None
        return cls(
            compute_major=compute_major,
            compute_minor=compute_minor,
            registers_per_sm=registers_per_sm or _REGISTERS_PER_SM,
            registers_per_block=registers_per_block or _REGISTERS_PER_SM,
            warps_per_sm=warps,
            blocks_per_sm=blocks,
            shared_per_sm=shared,
            sm_count=sm_count,
            threads_per_warp=threads_per_warp or _THREADS_PER_WARP,
        )


@dataclass(frozen=True)
class Occupancy:
    """One value per launch.

    `occupancy` is resident warps ÷ the most possible, `sm_fill` the share of SMs that get a block at all. `waves` and
    `tail_efficiency` (waves ÷ waves rounded up) are NaN where no block fits. `limiter` has bit i set where
    LIMITER_NAMES[i] is (one of) the tightest limits.
    """

    blocks_per_sm: Ints
    occupancy: Floats
    limiter: NDArray[np.uint8]
    waves: Floats
    tail_efficiency: Floats
    sm_fill: Floats
    idle_sms: Ints
    underfills: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "underfills", self.sm_fill < _UNDERFILL)


def occupancy(
    limits: SmLimits, threads: ArrayLike, registers: ArrayLike, shared_bytes: ArrayLike, grid_blocks: ArrayLike
) -> Occupancy:
    """Occupancy and grid fill of launches.

    `threads` per block (x·y·z), `registers` per thread, `shared_bytes` per block (static + dynamic), `grid_blocks`
    (x·y·z): integers of one shape, or broadcastable to it.
    """
    arrays = (np.asarray(a, dtype=np.int64) for a in (threads, registers, shared_bytes, grid_blocks))
    threads_, registers_, shared_, blocks_ = np.broadcast_arrays(*arrays)
    warps = -(-threads_ // limits.threads_per_warp)
    valid = (threads_ > 0) & (threads_ <= _THREADS_PER_BLOCK_MAX)
    by_limit = np.stack(
        [
            _register_limit(limits, warps, registers_),
            _shared_limit(limits, shared_),
            np.where(valid, limits.warps_per_sm // np.maximum(warps, 1), 0),
            np.full_like(warps, limits.blocks_per_sm),
        ]
    )
    per_sm: Ints = by_limit.min(axis=0)
    bits = np.array([1, 2, 4, 8], dtype=np.uint8).reshape((4,) + (1,) * per_sm.ndim)
    limiter = ((by_limit == per_sm) * bits).sum(axis=0, dtype=np.uint8)
    return _filled(limits, per_sm, warps, blocks_, limiter)


def limiter_names(limiter: int) -> tuple[str, ...]:
    """The names in one value of `Occupancy.limiter`; more than one where limits tie."""
    return tuple(name for i, name in enumerate(LIMITER_NAMES) if limiter >> i & 1)


def _filled(limits: SmLimits, per_sm: Ints, warps: Ints, blocks: Ints, limiter: NDArray[np.uint8]) -> Occupancy:
    capacity = np.where(per_sm > 0, per_sm * limits.sm_count, np.nan)
    waves = blocks / capacity
    reached = np.minimum(blocks, limits.sm_count)
    return Occupancy(
        blocks_per_sm=per_sm,
        occupancy=per_sm * warps / limits.warps_per_sm,
        limiter=limiter,
        waves=waves,
        tail_efficiency=waves / np.maximum(np.ceil(waves), 1.0),
        sm_fill=reached / limits.sm_count,
        idle_sms=limits.sm_count - reached,
    )


def _register_limit(limits: SmLimits, warps: Ints, registers: Ints) -> Ints:
    """Blocks that the registers allow: whole warps per sub-partition, then whole blocks."""
    per_warp = _round_up(registers * limits.threads_per_warp, _REGISTER_UNIT)
    per_partition = limits.registers_per_sm // _SUB_PARTITIONS // np.maximum(per_warp, 1)
    fitting = per_partition * _SUB_PARTITIONS // np.maximum(warps, 1)
    too_big = per_warp * _round_up(warps, _SUB_PARTITIONS) > limits.registers_per_block
    return np.where(registers == 0, _NO_LIMIT, np.where(too_big, 0, fitting))


def _shared_limit(limits: SmLimits, shared: Ints) -> Ints:
    """Blocks that the shared memory allows, the driver's reserve included."""
    since_8 = limits.compute_major >= 8
    reserve, unit = (_SHARED_RESERVE_BYTES, _SHARED_UNIT_BYTES) if since_8 else (0, _SHARED_UNIT_BYTES_BEFORE_8)
    per_block = _round_up(shared + reserve, unit)
    return np.where(per_block == 0, _NO_LIMIT, limits.shared_per_sm // np.maximum(per_block, 1))


def _round_up(values: Ints, unit: int) -> Ints:
    return -(-values // unit) * unit
