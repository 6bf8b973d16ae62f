"""What counts as a secret, what is taken out of a text, and which words of nsys's own may stay."""

import pytest

from tracelab.capture.redact import Finder, Redactor
from tracelab.capture.scrub_secrets import Secrets, find_secrets
from tracelab.capture.scrub_values import clean_diagnostic, clean_property, clean_setting

VARIABLE = "PROCESS_0:ENVIRONMENT_VARIABLE_0"


def cleaned(text: str, *pairs: tuple[str, str], says: str = "name") -> str | None:
    """`text` as the copy of an export with these settings holds it."""
    found: str | None = getattr(Redactor(find_secrets(pairs)), says)(text.encode())
    return found


@pytest.mark.parametrize(
    ("variable", "text", "clean"),
    [
        ("API_KEY=hunter", "step hunter", "step (removed)"),
        ("API_KEY=abc", "step abc", "step abc"),  # stands in every file by chance
        ("MODE=acme-corp", "acme-corp/attn", "(removed)/attn"),  # 9 characters that name no code
        ("MODE=acme-co", "acme-co/attn", "acme-co/attn"),  # 7
        ("MODE=flash_attention_2", "flash_attention_2 fwd", "flash_attention_2 fwd"),  # the name of code
        ("DTYPE=float8_e4m3fn", "gemm<float8_e4m3fn>", "gemm<float8_e4m3fn>"),
        ("FILTER=flash::fwd_kernel", "flash::fwd_kernel<64>", "flash::fwd_kernel<64>"),
        ("X=sk_live_4eC39HqLyjWDarjtT1zdp7dc", "a sk_live_4eC39HqLyjWDarjtT1zdp7dc", "a (removed)"),
        ("MAX_TOKENS=131072", "prefill 131072", "prefill 131072"),  # a number of tokens unlocks nothing
        ("TOKENIZERS_PARALLELISM=disabled", "disabled", "disabled"),
        ("ACCESS_TOKEN=disabled", "disabled", "(removed)"),
        ("USER=anna", "anna savannah", "(removed) savannah"),  # short: a whole word only
        ("USER=root", "root/attn", "root/attn"),
        ("USER=triton", "triton_poi_fused_0", "triton_poi_fused_0"),  # an account of a public container
        ("HOME=/home/triton/x", "triton_poi_fused_0", "triton_poi_fused_0"),
        ("USER=tristan", "tristan_poi_fused_0", "(removed)_poi_fused_0"),
        ("USER=bob", "bob", "bob"),
        ("HOSTNAME=node17.x.org", "on node17 and node17.x.org", "on (removed) and (removed)"),
        ("DB_HOST=db.internal", "at db.internal", "at (removed)"),
        ("TRACE_HOST=false", "kernel<false>", "kernel<false>"),
        ("PROXY=http://anna:tr0ub4dor@proxy.corp:80", "tr0ub4dor of anna", "(removed) of (removed)"),
        ("PROXY=http://anna:tr0ub4dor@proxy.corp:80", "at proxy.corp", "at (removed)"),
        ("DIR=/home/maria/x", "maria's /data/a/b", "(removed)'s (path)"),
        ("LIST=/a/first dir:/b/second dir", "in /b/second dir now", "in (path) now"),
        ("TEXT=line one\nline number two", "line number two", "(removed)"),
        ("SIZES=1024,204800000000000000", "1024 204800000000000000", "1024 (removed)"),
        ("BLANK=        x", "a        b", "a        b"),
        ("DONE=(removed)", "(removed)", "(removed)"),
    ],
)  # fmt: skip
def test_variables_in_a_range(variable: str, text: str, clean: str) -> None:
    assert cleaned(text, (VARIABLE, variable)) == clean


@pytest.mark.parametrize(
    ("arguments", "text", "clean"),
    [
        (("--password", "hunters"), "hunters", "(removed)"),  # the option says what it is
        (("--phase", "hunters"), "hunters", "hunters"),
        (("--api-key=hunters",), "hunters", "(removed)"),
        (("serve --password hunters -v",), "hunters", "(removed)"),  # a command line in one value
        (("--dtype", "bfloat16"), "bfloat16", "bfloat16"),
        (("--model", "org/Model-8B"), "org/Model-8B", "(removed)"),
    ],
)
def test_arguments_in_a_range(arguments: tuple[str, ...], text: str, clean: str) -> None:
    assert cleaned(text, *[(f"PROCESS_0:ARGUMENT_{i}", word) for i, word in enumerate(arguments)]) == clean


def test_the_workload_record_keeps_its_words_but_no_secret() -> None:
    pairs = [("PROCESS_0:ARGUMENT_0", "org/Model-8B"), (VARIABLE, "API_KEY=hunters")]
    record = '{"tracelab.workload": 1, "model": "org/Model-8B", "x": "hunters", "y": "/data/m/n"}'
    assert cleaned(record, *pairs) == (
        '{"tracelab.workload": 1, "model": "org/Model-8B", "x": "(removed)", "y": "(path)"}'
    )


def test_what_the_machine_says_of_itself_keeps_its_words() -> None:
    pairs = [(VARIABLE, "GPU=NVIDIA H200"), (VARIABLE, "API_KEY=hunters")]
    assert cleaned("NVIDIA H200 of hunters", *pairs, says="fact") == "NVIDIA H200 of (removed)"
    assert cleaned("NVIDIA H200", *pairs) == "(removed)"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("dlopen(/usr/lib/libcuda.so.1)", "dlopen(libcuda.so.1)"),
        ("dlopen(libcupti.so.13.0)", "dlopen(libcupti.so.13.0)"),
        ("dlopen(/home/me/libwork.so)", "dlopen(library)"),
        ("dlopen(prefetch_async.so)", "dlopen(library)"),
        ("CUDA profiling data flush on cudaProfilerStop", "CUDA profiling data flush on cudaProfilerStop"),
        ("read /home/me/x", "read (path)"),
    ],
)
def test_overheads(text: str, clean: str) -> None:
    assert cleaned(text, says="overhead") == clean


def test_how_many_texts_were_changed() -> None:
    redactor = Redactor(find_secrets([(VARIABLE, "API_KEY=hunters")]))
    assert [redactor.name(text) for text in (b"a", b"hunters", b"hunters", None)] == [
        "a",
        "(removed)",
        "(removed)",
        None,
    ]
    assert (redactor.changed, redactor.overhead(b"x /a/b"), redactor.changed) == (1, "x (path)", 2)


def test_a_thousand_secrets_are_found_as_one_is() -> None:
    secrets = [f"secret-{i:04d}" for i in range(1000)]
    text = "a secret-0007 and secret-0999, no secret-1000"
    assert Finder(secrets).found(text) == ["secret-0007", "secret-0999"]
    assert Finder(["secret-0007 and", "secret-0007"]).found(text) == ["secret-0007 and", "secret-0007"]
    assert Finder([]).found(text) == []
    assert Redactor(Secrets(strong=frozenset(secrets))).secrets_in("name", text) == ["secret-0007", "secret-0999"]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node", "Node"),
        ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "alice", None),
        ("CUDA_GRAPH_TRACE_OPTIONS:ALICE", "Node", None),
        ("EXPORT_PRODUCT_VERSION", "2025.3.2.474-253236389321v0 Linux.alice", "2025.3.2.474"),
        ("EXPORT_PRODUCT_VERSION", "alice", None),
        ("EXPORT_PARAM_INPUT_FILE", "trace.nsys-rep", None),
        ("EXPORT_SCHEMA_VERSION_CKSUM", "4021079525 170230", "4021079525 170230"),
        ("START_TRIGGER", "Immediate\n", None),
        ("START_DELAY_MS", "12345678901234567890", None),
        ("PROCESS_0:ARGUMENT_0", "true", None),
    ],
)
def test_settings(name: str, value: str, kept: str | None) -> None:
    assert clean_setting(name, value) == kept


GPU_INFO = '[{"name": "Quadro RTX 6000", "smCount": 72, "uuid": "GPU-1"}, {"name": "at /home/x", "smCount": "9x"}, 3]'


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (GPU_INFO, '[{"name": "Quadro RTX 6000", "smCount": 72}, {"name": "at /home/x"}, {"name": ""}]'),
        ('[{"name": "one, two", "numMultiprocessors": "72"}]', '[{"name": "", "smCount": 72}]'),
        ("not JSON", None),
        ('{"name": "Quadro RTX 6000"}', None),
        ("[" * 100_000, None),
    ],
)
def test_the_description_of_the_gpus_is_made_anew(value: str, kept: str | None) -> None:
    assert clean_property("GpuInfo", value) == kept


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("No CUDA events collected. Does the process use CUDA?", None),
        ("Number of CUDA events collected: \t3,000.", None),
        ("Process was launched by the profiler, see pid_47_stdout.log and stderr.log for program output", None),
        ("Loaded CUPTI library: libcupti.so.12.8", None),
        ("Installed CUDA driver version (580.95) is not supported by this build of NVIDIA Nsight Systems.", None),
        ("Number of alice events collected: 3.", "(removed)"),
        ("No CUDA events collected by /home/alice/x", "(removed)"),
        ("Failed in alice's run: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        ("CUPTI_ERROR_" + "A" * 99, "CUPTI_ERROR_" + "A" * 40),
        ("number " * 60, "(removed)"),
    ],
)
def test_messages_in_words_of_nsys_stay(text: str, clean: str | None) -> None:
    assert clean_diagnostic(text) == (text if clean is None else clean)
