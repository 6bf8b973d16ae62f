"""The command line called in this process: its exit code and what it printed."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from tracelab.__main__ import main


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str


def called(*words: object) -> Answer:
    """`tracelab` with these words, as if its output went to a pipe."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with patch.object(sys, "argv", ["tracelab", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return Answer(int(code) if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
