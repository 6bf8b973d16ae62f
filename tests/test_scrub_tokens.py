"""Keys and tokens by their shape, names of customers and jobs, and numbers in messages are in no shareable text."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from planted_secrets import left_in

from tracelab.capture import scrub_sqlite
from tracelab.capture.redact import Redactor
from tracelab.capture.scrub import scrub
from tracelab.capture.scrub_secrets import Secrets, find_secrets
from tracelab.capture.scrub_values import REMOVED, clean_diagnostic
from tracelab.errors import InputError
from tracelab.samples import FOLDER

VARIABLE = "PROCESS_0:ENVIRONMENT_VARIABLE_0"
SAYS = ("name", "overhead", "fact", "diagnostic")
A_TAIL = "aB3dE5gH7jK9mN1pQ3sT"
KEYS = (
    f"hf_{A_TAIL}",
    f"sk-{A_TAIL}",
    f"sk-proj-{A_TAIL}_x",
    f"ghp_{A_TAIL}",
    f"gho_{A_TAIL}",
    f"github_pat_11ABC_{A_TAIL}",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    f"xoxb-1234-{A_TAIL}",
    f"glpat-{A_TAIL}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
    f"Bearer {A_TAIL}",
)


def redactor(*variables: str) -> Redactor:
    return Redactor(find_secrets((VARIABLE, variable) for variable in variables))


def cleaned(says: str, text: str, *variables: str) -> str:
    """`text` as the copy of an export with these variables holds it."""
    found: str = getattr(redactor(*variables), says)(text.encode())
    return found


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_taken_out_of_any_text_without_any_environment(key: str) -> None:
    assert cleaned("name", f"step 3 ({key}) end") == f"step 3 ({REMOVED}) end"
    assert cleaned("overhead", f"by {key}") == f"by {REMOVED}"
    assert cleaned("fact", key) == REMOVED
    assert cleaned("diagnostic", f"Number of {key}") == REMOVED
    assert (
        cleaned("name", f'{{"tracelab.workload": 1, "x": "{key}"}}') == f'{{"tracelab.workload": 1, "x": "{REMOVED}"}}'
    )
    for says in (*SAYS, "setting", "property"):  # so a copy that holds one is refused
        assert redactor().secrets_in(says, f"x {key}") == [key]


@pytest.mark.parametrize(
    "name",
    [
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEvi",
        "_ZN3hf_16aB3dE5gH7jK9mN1pQ3sTEv",
        "sk_gemm_bf16_128x128_tilesize64x3_nn_align8",  # a stream-k kernel
        "hf_rms_norm_kernel_bf16x8_warps4_stages2",
        "task-aB3dE5gH7jK9mN1pQ3sT",  # no start of a word
        "sk-attention",  # too short
        "sk-attention-layer-forward",  # no digit
        "hf_12345678901234567890",  # no letter
        "AKIAIOSFODNN7EXAMPLEXX",  # 22 characters
        "eyJson.parser",
        "Bearer of the long sentence 17",
    ],
)
def test_control_the_name_of_a_kernel_is_no_key(name: str) -> None:
    assert cleaned("name", name) == name


def test_of_a_key_no_rest_is_left_around_a_secret() -> None:
    assert cleaned("name", "a sk-wilhelmina-0123456789abcdef b", "USER=wilhelmina") == f"a {REMOVED} b"


@pytest.mark.parametrize(
    "variable",
    [
        "CUSTOMER", "ACME_CLIENT_NAME", "TENANT_ID", "WANDB_PROJECT", "SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT", "ORG_NAME",
        "MY_TEAM", "ORGANIZATION", "MLFLOW_EXPERIMENT_NAME", "RUN_NAME", "customer",
    ],
)  # fmt: skip
def test_the_name_of_a_customer_or_job_is_taken_out_of_ranges(variable: str) -> None:
    assert (
        cleaned("name", "acme: acme_decode/acme acmes Acme", f"{variable}=acme")
        == "(removed): (removed)_decode/(removed) acmes Acme"
    )
    assert redactor(f"{variable}=acme").secrets_in("name", "by acme") == ["acme"]


@pytest.mark.parametrize("variable", ["MODE", "XORG_MODE", "STEAM_RUNTIME", "PROJECTION_KIND", "RUNNER_NAMES"])
def test_control_a_plain_word_of_another_variable_stays(variable: str) -> None:
    assert cleaned("name", "acme: decode", f"{variable}=acme") == "acme: decode"


@pytest.mark.parametrize(
    "value", ["decode", "prefill", "step", "bench", "test", "default", "main", "true", "Decode", "1234", "12.5", "abc"]
)
def test_an_everyday_word_or_number_stays_in_ranges(value: str) -> None:
    assert cleaned("name", f"run {value} of it", f"JOB_NAME={value}") == f"run {value} of it"


def test_the_machine_and_the_workload_record_keep_the_name_of_a_project() -> None:
    assert cleaned("fact", "NVIDIA H200", "PROJECT=H200") == "NVIDIA H200"
    record = '{"tracelab.workload": 1, "model": "quokka"}'
    assert cleaned("name", record, "PROJECT=quokka") == record


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Number of CUDA events collected: 3,000.", None),
        ("Nsight Systems version 2025.3.2 or newer is required", REMOVED),  # `required` is no word of nsys's
        ("Nsight Systems 2025.3.2", None),
        ("NVIDIA driver version 580.159.04 and CUPTI 13.0.", None),
        ("Loaded CUPTI library: libcupti.so.13.0.85", None),
        ("Failed to read file at 10.20.30.40", REMOVED),
        ("Failed to read file at 10.20.30.40:8080.", REMOVED),
        ("Failed to read file at 2025.3.2.474", REMOVED),
        ("Loaded CUPTI library: libcupti.so10.20.30.40", REMOVED),
        ("Failed to read file at 1234.5678", REMOVED),
    ],
)
def test_numbers_in_messages(text: str, clean: str | None) -> None:
    assert clean_diagnostic(text) == (clean or text)


@pytest.mark.parametrize(
    ("variable", "text", "clean"),
    [
        ("PIN=4821", "Number of events: 4821.", "Number of events: (removed)."),
        ("PIN=482", "Number of events: 482, 4820.", "Number of events: (removed), 4820."),
        ("DOOR_PASS=48215577", "process 48215577 started", "process (removed) started"),
        ("JOB=77123", "see pid_77123_stdout.log", "see (removed)"),
        ("MASTER=h:29500", "Failed to read file at 29500", "Failed to read file at (removed)"),
        ("BUILD=580.159.04", "driver version (580.159.04)", "driver version ((removed))"),
        ("DB_PASS=data", "data events collected", "(removed) events collected"),  # a word of nsys, but a credential
        ("API_KEY=events", "data events collected", "data (removed) collected"),
        ("NOTE=file at index 1234567", "file at index 1234567 found", "(removed) found"),  # weak
        ("CLIENT=report", "Failed: CUPTI_ERROR_ACME", "Failed: CUPTI_ERROR_ACME"),
        ("SITE=CUPTI_ERROR_ACME", "Failed: CUPTI_ERROR_ACME", "Failed: (removed)"),
        ("KIND=data", "data events collected", "data events collected"),
        ("RANK=8", "Number of events: 8.", "Number of events: 8."),  # a digit tells nothing
    ],
)
def test_a_message_loses_every_value_of_the_environment(variable: str, text: str, clean: str) -> None:
    assert cleaned("diagnostic", text, variable) == clean
    sought = redactor(variable)
    assert bool(sought.secrets_in("diagnostic", text)) == (clean != text)
    assert sought.secrets_in("diagnostic", clean) == []
    assert cleaned("diagnostic", clean, variable) == clean  # a copy of the copy is the same


PLANTED = ("10.20.30.40", "48215", "quokkacorp", KEYS[0], KEYS[6])


def planted(path: Path) -> Path:
    """A recording whose ranges and messages hold every one of PLANTED in words that are otherwise harmless."""
    with (
        closing(sqlite3.connect(FOLDER / "failed_launch_h200.sqlite")) as sample,
        closing(sqlite3.connect(path)) as new,
    ):
        sample.backup(new)
        variables = [(f"PROCESS_0:ENVIRONMENT_VARIABLE_{i}", v) for i, v in enumerate(("PIN=48215", "TEAM=quokkacorp"))]
        new.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", variables)
        texts = ["Failed to read file at 10.20.30.40", "Number of events collected: 48215."]
        new.executemany("INSERT INTO DIAGNOSTIC_EVENT (severity, text) VALUES (1, ?)", [(text,) for text in texts])
        ranges = [(f"decode for quokkacorp with {KEYS[0]}",), (f"load {KEYS[6]}",)]
        new.executemany("INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES (1, 2, 59, ?)", ranges)
        new.commit()
    return path


@pytest.mark.parametrize("slim", [False, True])
def test_none_is_left_in_any_byte_of_a_copy(tmp_path: Path, slim: bool) -> None:
    from tracelab.commands.scrub import _read_columns

    source = planted(tmp_path / "full.sqlite")
    assert left_in(source, PLANTED) == list(PLANTED)
    scrub(source, tmp_path / "copy", _read_columns() if slim else None)
    assert left_in(tmp_path / "copy", PLANTED) == []


@pytest.mark.parametrize("text", ["Number of events collected: 48215.", "data events of quokkacorp", KEYS[0]])
def test_a_message_that_would_keep_a_value_refuses_the_copy(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Secrets(weak=frozenset({"quokkacorp"}), values=frozenset({"48215"}))
    monkeypatch.setattr(scrub_sqlite, "find_secrets", lambda _: secrets)
    monkeypatch.setattr(Redactor, "_diagnostic", lambda _self, _text: text)
    with pytest.raises(InputError, match="would still hold 1 value"):
        scrub(FOLDER / "failed_launch_h200.sqlite", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
