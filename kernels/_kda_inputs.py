"""Options of a KDA case, checked, and random inputs for them."""

from dataclasses import dataclass

import torch

from tracelab.errors import UsageError
from tracelab.kernels._kda_data import TAPS, Cache, Token, Weights
from tracelab.kernels._kernel import Options, poisoned, random

GATES = ("k3", "kimi")
STATES = {32: torch.float32, 16: torch.bfloat16}
ROW_ELEMENTS = 64  # a row of the projection is a multiple of 128 bytes in bf16, so that wide loads stay possible
MIN_DIM, MAX_DIM = 16, 128  # of K and V; a block holds a whole state of 64 KiB, a larger one would not fit


@dataclass(frozen=True)
class Shape:
    """The options of a case, checked."""

    rows: int
    heads: int
    key_dim: int
    value_dim: int
    state: torch.dtype
    null_rows: int
    gate: str

    @classmethod
    def of(cls, options: Options) -> "Shape":
        rows, heads, key_dim, value_dim, bits, null_rows = (
            int(options[name]) for name in ("batch", "heads", "key_dim", "value_dim", "state_bits", "null_rows")
        )
        gate = str(options["gate"])
        if any(not MIN_DIM <= dim <= MAX_DIM or dim & (dim - 1) for dim in (key_dim, value_dim)):
            raise UsageError(
                f"--key-dim {key_dim} --value-dim {value_dim}: powers of two from {MIN_DIM} to {MAX_DIM} are needed."
            )
        if gate not in GATES or bits not in STATES:
            raise UsageError(f"--gate {gate} --state-bits {bits}: the gate is k3 or kimi, the bits are 32 or 16.")
        if null_rows > rows:
            raise UsageError(f"--null-rows {null_rows}: the batch has only {rows} rows.")
        return cls(rows, heads, key_dim, value_dim, STATES[bits], null_rows, gate)

    @property
    def units(self) -> int:
        return self.rows * self.heads

    @property
    def channels(self) -> int:
        return self.heads * (2 * self.key_dim + self.value_dim)


@dataclass(frozen=True)
class Inputs:
    token: Token
    weights: Weights
    cache: Cache
    out: torch.Tensor

    @classmethod
    def random(cls, seed: int, shape: Shape, device: torch.device, dtype: torch.dtype) -> "Inputs":
        """Activations, weights and cache of one layer; x and b are slices of one projection, as in a model."""

        def make(part: int, *size: int, kind: torch.dtype = torch.float32, std: float = 1.0) -> torch.Tensor:
            return random(16 * seed + part, *size, device=device, dtype=kind, std=std)

        rows, heads, key_dim, value_dim = shape.rows, shape.heads, shape.key_dim, shape.value_dim
        padded = -(-(shape.channels + heads) // ROW_ELEMENTS) * ROW_ELEMENTS
        projection = make(0, rows, padded, kind=dtype)
        g, gate = make(1, rows, heads, key_dim, kind=dtype), make(2, rows, heads, value_dim, kind=dtype)
        token = Token(projection[:, : shape.channels], g, projection[:, shape.channels : shape.channels + heads], gate)
        conv, a_log = make(3, TAPS * shape.channels, std=0.5), make(4, heads, std=0.5)
        weights = Weights(conv, a_log, make(5, heads, key_dim, std=0.5), 1.0 + make(6, value_dim, std=0.1))
        state = make(7, rows, heads, value_dim, key_dim, std=0.1).to(shape.state)
        cache = Cache(state, make(8, rows, TAPS, shape.channels, kind=dtype))
        return cls(token, weights, cache, poisoned(rows, heads, value_dim, device=device, dtype=dtype))


def slot_tables(rows: int, null_rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The slot of each row, int32, none for the last `null_rows`, and the row of each slot, int64; −1 is none."""
    slots = torch.arange(rows - 1, -1, -1, dtype=torch.int32)
    slots[rows - null_rows :] = -1
    row_of = torch.full((rows,), -1, dtype=torch.int64)
    row_of[slots[: rows - null_rows].long()] = torch.arange(rows - null_rows)
    return slots.to(device), row_of.to(device)
