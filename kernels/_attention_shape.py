"""Shapes of attention over a prompt: tiles, and the bytes and FLOPs of each variant."""

from dataclasses import dataclass

from tracelab.kernels._kernel import Options, Work

# L²-sized reads and writes: write S; read and write it for the scale; read it and write P for the softmax; read P. A
# causal mask reads and writes S once more.
PASSES = {"naive": 6, "naive_folded": 4}
MASK_PASSES = 2


@dataclass(frozen=True)
class Tile:
    """Queries and keys that a block works on at a time, and its launch configuration."""

    rows: int
    keys: int
    warps: int
    stages: int


FLASH = Tile(rows=128, keys=128, warps=8, stages=3)  # 243 registers, 229 432 B shared: one block an SM


@dataclass(frozen=True)
class Shape:
    """Q, K, V and OUT are [batch, heads, length, dim]."""

    batch: int
    heads: int
    dim: int
    length: int
    causal: bool

    @property
    def elements(self) -> int:
        """Of Q, K, V and OUT together."""
        return 4 * self.batch * self.heads * self.length * self.dim

    @property
    def all_pairs(self) -> int:
        """Queries times keys."""
        return self.batch * self.heads * self.length**2

    @property
    def pairs(self) -> int:
        """Queries times the keys they see, with a causal mask half of all, as benchmarks of attention count them."""
        return self.all_pairs // 2 if self.causal else self.all_pairs

    def tiled_pairs(self, tile: Tile) -> int:
        """Pairs that whole tiles cover, those of padding and of masked keys too."""
        starts = range(0, self.length, tile.rows)
        ends = [min(row + tile.rows, self.length) if self.causal else self.length for row in starts]
        return self.batch * self.heads * sum(tile.rows * -(-end // tile.keys) * tile.keys for end in ends)


def shape_of(options: Options) -> Shape:
    """Raises ValueError for a head_dim that the kernels cannot tile."""
    batch, heads, dim, length, causal = (int(options[n]) for n in ("batch", "heads", "head_dim", "length", "causal"))
    if dim < 16 or dim & (dim - 1):
        raise ValueError("head_dim must be a power of two, 16 or more")
    return Shape(batch, heads, dim, length, bool(causal))


def work(shape: Shape, variant: str, element_size: int) -> Work:
    """Q, K and V read and OUT written once; 4·dim FLOPs for each query and key that it sees.

    What torch's own kernel executes beyond that is not known, and left out.
    """
    executed = {"sdpa": shape.pairs, **dict.fromkeys(PASSES, shape.all_pairs)}.get(variant, shape.tiled_pairs(FLASH))
    return Work(
        bytes=shape.elements * element_size,
        flops=4 * shape.dim * shape.pairs,
        executed_flops=4 * shape.dim * executed,
    )


def traffic_bytes(options: Options, variant: str, element_size: int = 2) -> int:
    """Bytes that the variant's algorithm reads and writes: the inputs, the output and its passes over L² elements."""
    shape = shape_of(options)
    passes = PASSES.get(variant, 0)
    if passes and shape.causal:
        passes += MASK_PASSES
    return (shape.elements + passes * shape.all_pairs) * element_size


@dataclass(frozen=True)
class TrafficRow:
    """One line of the traffic table; `bytes` are those of the algorithm, `ns` one call's measured time."""

    length: int
    variant: str
    bytes: int
    ns: float

    @property
    def bytes_per_s(self) -> float:
        """Achieved traffic. That of flash is low: its FLOPs take longer than its bytes."""
        return self.bytes / self.ns * 1e9
