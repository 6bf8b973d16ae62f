"""The floor of a step: what options and workload record say of bytes and FLOPs, and which binds."""

from typing import Any

import pytest

from tracelab.errors import UsageError
from tracelab.floor import Floor, step_floor
from tracelab.gpu_facts import Machine, machine
from tracelab.options import Facts
from tracelab.trace import Gpu

H200 = Gpu(0, "NVIDIA H200", 132, 150109880320, 4814304000000, 9, 0)
NO_FACTS = Facts()


def floor(facts: Facts = NO_FACTS, gpu: Gpu = H200, **record: Any) -> Floor:
    return step_floor(machine(gpu, facts), facts, record or None)


def test_dense_bf16_model_on_an_h200() -> None:
    found = floor(Facts(params=8.03e9))
    assert found.bytes == 16.06e9
    assert found.ns == 3_345_833  # 16.06e9 / 4.8e12 s: the datasheet's bandwidth, not the 4.814e12 of the trace
    assert found.kind == "bytes"


def test_kv_cache_adds_to_the_weights() -> None:
    assert floor(Facts(params=1e9, kv_bytes=131072 * 8192)).bytes == 2e9 + 131072 * 8192


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", 2.0), ("FP8", 1.0), ("int4", 0.5), ("fp32", 4.0)])
def test_bytes_per_parameter(dtype: str, expected: float) -> None:
    assert floor(Facts(params=1e9, dtype=dtype)).bytes == expected * 1e9


def test_the_record_alone_is_enough() -> None:
    found = floor(bytes_per_step=4.8e9, flops_per_step=989e9)
    assert (found.bytes, found.flops) == (4.8e9, 989e9)
    assert (found.ns, found.kind) == (1_000_000, "bytes")  # 989e9 FLOP at 989e12 are 1 ms as well; bytes go first


def test_flops_bind_at_large_batch() -> None:
    assert floor(bytes_per_step=4.8e9, flops_per_step=2 * 989e9).kind == "flops"
    assert floor(flops_per_step=989e9).ns == 1_000_000
    assert floor(bytes_per_step=4.8e9, flops_per_step=2 * 989e9, dtype="fp8").kind == "bytes"  # 1979 TFLOP/s


def test_an_option_overrides_the_record() -> None:
    assert floor(Facts(params=1e9), bytes_per_step=9e9).bytes == 2e9
    # 1e9 parameters in bf16 are 2e9 of the record's 9e9 bytes; the other 7e9 (KV cache) stay as they are.
    assert floor(Facts(dtype="fp8"), bytes_per_step=9e9, params=1e9).bytes == 1e9 + 7e9
    assert floor(Facts(dtype="bf16"), bytes_per_step=9e9, params=1e9).bytes == 9e9
    assert floor(Facts(kv_bytes=1e9), bytes_per_step=9e9, params=1e9).bytes == 2e9 + 1e9
    assert floor(Facts(bandwidth_bytes_per_s=1e9), bytes_per_step=1e6).ns == 1_000_000


def test_phases_stay_only_with_the_recorded_total() -> None:
    parts = {"attn": {"bytes": 4e9}}
    assert floor(Facts(dtype="bf16"), bytes_per_step=9e9, params=1e9, phases=parts).phases == {"attn": (4e9, None)}
    assert floor(Facts(dtype="fp8"), bytes_per_step=9e9, params=1e9, phases=parts).phases == {}


def test_params_alone_keep_the_records_share_of_active_ones() -> None:
    # A mixture of 30e9 parameters reads 3e9; told to have 60e9 it reads 6e9, 12e9 bytes in bf16, and its 1e9 of KV.
    record: dict[str, Any] = {"params": 30e9, "active_params": 3e9, "bytes_per_step": 7e9}
    assert floor(Facts(params=60e9), **record).bytes == 12e9 + 1e9
    assert floor(Facts(active_params=6e9), **record).bytes == 12e9 + 1e9
    assert floor(Facts(params=30e9), **record).bytes == 7e9


def test_a_record_that_counts_parameters_no_step_reads() -> None:
    # 8e9 parameters are 16e9 bytes, of which the step reads 15e9: in fp8 half of that.
    assert floor(Facts(dtype="fp8"), params=8e9, bytes_per_step=15e9).bytes == 7.5e9
    assert floor(Facts(kv_bytes=1e9), params=8e9, bytes_per_step=15e9).bytes == 16e9


def test_an_option_that_cannot_be_applied_is_refused() -> None:
    with pytest.raises(UsageError, match="give --params"):
        floor(Facts(dtype="fp8"), bytes_per_step=15e9)


def test_tensor_parallel_shards_the_weights() -> None:
    assert floor(params=8e9, tensor_parallel=8).bytes == 2e9


def test_active_parameters_of_a_mixture() -> None:
    assert floor(params=100e9, active_params=10e9).bytes == 20e9


@pytest.mark.parametrize("nonsense", ["many", -1, 0, None, True, float("inf"), float("nan"), [1], {"a": 1}])
def test_values_that_are_no_numbers_are_unknown(nonsense: object) -> None:
    found = floor(bytes_per_step=nonsense, params=nonsense, flops_per_step=nonsense, phases=nonsense)
    assert (found.bytes, found.flops, found.ns) == (None, None, None)
    assert found.why_not is not None


def test_an_unknown_gpu_has_no_floor() -> None:
    found = floor(Facts(params=1e9), gpu=Gpu(0, "Mystery"))
    assert (found.bytes, found.ns) == (2e9, None)
    assert found.why_not is not None
    assert "--bandwidth" in found.why_not


def test_a_gpu_without_a_datasheet_has_the_traces_bandwidth() -> None:
    found: Machine = machine(Gpu(0, "Mystery", 10, bandwidth_bytes_per_s=10**9), NO_FACTS)
    assert (found.bandwidth_bytes_per_s, found.bandwidth_source) == (1e9, "trace")
    assert machine(H200, NO_FACTS).bandwidth_source == "datasheet"
    assert machine(H200, Facts(bandwidth_bytes_per_s=1.0)).bandwidth_source == "option"
