"""The datasheet table: what a trace names, what --gpu names, and the limits per compute capability."""

import pytest

from tracelab.errors import UsageError
from tracelab.gpus import SmDefaults, by_option, datasheet, known_names, sm_defaults

# Names, total memory in bytes and SM counts as real exports report them; bandwidths are the datasheet's, in bytes/s.
REPORTED = [
    ("NVIDIA H200", 150109880320, 132, "H200", 4.8e12),
    ("NVIDIA H100 80GB HBM3", 85045542912, 132, "H100", 3.35e12),
    ("NVIDIA H100 PCIe", 85045542912, 114, "H100-PCIe", 2.0e12),
    ("NVIDIA H100 NVL", 99857989632, 132, "H100-NVL", 3.9e12),
    ("NVIDIA A100-SXM4-40GB", 42297524224, 108, "A100-40GB", 1.555e12),
    ("NVIDIA A100-SXM4-80GB", 85094825984, 108, "A100-80GB", 2.039e12),
    ("NVIDIA A100 80GB PCIe", 85094825984, 108, "A100-80GB-PCIe", 1.935e12),
    ("NVIDIA H20", 102060000000, 78, "H20", 4.0e12),
    ("NVIDIA B200", 191500000000, 148, "B200", 8.0e12),
    ("NVIDIA GB200", 198000000000, 152, "GB200", 8.0e12),
    ("NVIDIA L4", 23580639232, 58, "L4", 300e9),
    ("NVIDIA A10G", 23600000000, 80, "A10G", 600e9),
    ("Tesla V100-SXM2-16GB", 16945512448, 80, "V100", 898e9),
    ("Tesla T4", 15828320256, 40, "T4", 320e9),
    ("Quadro RTX 6000", 25396838400, 72, "Quadro-RTX-6000", 672e9),
    ("NVIDIA RTX A5000", 25283526656, 64, "RTX-A5000", 768e9),
    ("NVIDIA GeForce RTX 3090", 25438126080, 82, "RTX-3090", 936e9),
    ("NVIDIA GeForce RTX 4060 Ti", 8187346944, 34, "RTX-4060-Ti", 288e9),
]


@pytest.mark.parametrize(("name", "memory", "sms", "key", "bandwidth"), REPORTED)
def test_a_reported_gpu_finds_its_datasheet(name: str, memory: int, sms: int, key: str, bandwidth: float) -> None:
    spec = datasheet(name, memory, sms)
    assert spec is not None
    assert (spec.name, spec.bandwidth_bytes_per_s) == (key, bandwidth)


def test_unknown_memory_and_sm_count_are_not_compared() -> None:
    spec = datasheet("NVIDIA H200", None, 0)
    assert spec is not None
    assert (spec.sm_count, spec.compute_capability, spec.bf16_flops_per_s) == (132, (9, 0), 989e12)


@pytest.mark.parametrize(
    ("name", "memory", "sms"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10_000_000_000, 16),  # a slice has neither the SMs nor the bandwidth
        ("NVIDIA H20", 150_000_000_000, 78),  # the 141 GB version has another bandwidth
        ("NVIDIA RTX 6000 Ada Generation", 51_000_000_000, 142),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 17_000_000_000, 76),
        ("NVIDIA L40", 48_000_000_000, 142),
        ("GeForce GTX 1060 with Max-Q Design", 6442450944, 10),
        ("Intel(R) HD Graphics 630", 0, 0),
        ("", None, None),
    ],
)
def test_what_only_looks_similar_has_no_datasheet(name: str, memory: int | None, sms: int | None) -> None:
    assert datasheet(name, memory, sms) is None


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("H200", "H200"),
        ("h100", "H100"),
        ("H100 SXM", "H100"),
        ("NVIDIA H200", "H200"),
        ("A100-80GB", "A100-80GB"),
        ("a100_40gb", "A100-40GB"),
        ("GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("quadro", "Quadro-RTX-6000"),
    ],
)
def test_the_option_takes_names_as_people_write_them(option: str, key: str) -> None:
    assert by_option(option).name == key


def test_every_known_name_is_a_valid_option() -> None:
    assert [by_option(name).name for name in known_names()] == known_names()


@pytest.mark.parametrize(("option", "named"), [("A100", "A100-40GB, A100-80GB"), ("H300", "H200"), ("", "H200")])
def test_an_unknown_or_ambiguous_option_names_the_choices(option: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        by_option(option)


def test_limits_by_compute_capability() -> None:
    assert sm_defaults(9, 0) == SmDefaults(warps=64, blocks=32, shared_bytes=233472)
    assert sm_defaults(7, 5) == SmDefaults(warps=32, blocks=16, shared_bytes=65536)
    assert sm_defaults(5, 2) is None
