"""Entry point: run the command line and turn every error into one sentence and an exit code."""

import os
import sys
from contextlib import suppress

from tracelab.errors import TracelabError
from tracelab.kernel_names import cut, escape

_INTERRUPTED = 130  # how a command ends after Ctrl-C: 128 and the number of the signal
_LONGEST_SENTENCE = 1200  # a name out of a damaged trace may be a megabyte


def main() -> None:
    """Run `tracelab`; never ends in a traceback unless TRACELAB_DEBUG is set."""
    try:
        from tracelab.cli import build_app

        build_app(sys.argv[1:])()
    except KeyboardInterrupt:  # while modules are imported; typer turns any later one into the exit code
        os._exit(_INTERRUPTED)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(_INTERRUPTED)  # without waiting for what other threads are computing
        raise
    except TracelabError as error:
        _fail(sentence_of(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # Every file has its own sentence where it is opened; what is left is the output stream.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - or Python flushes into the same error at its end
        _fail(f"the output cannot be written ({error.strerror or error}).", 1)
    except MemoryError:
        _fail("there is not enough memory; a report takes about 0.4 GB for each million kernels", 1)
    except Exception as error:
        if os.environ.get("TRACELAB_DEBUG"):
            raise
        _fail(f"internal error ({type(error).__name__}: {error}); set TRACELAB_DEBUG=1 for the traceback", 1)


def sentence_of(error: TracelabError) -> str:
    """What is printed of an error: names in it come from traces and file systems, so it is escaped and bounded."""
    return cut(escape(str(error)), _LONGEST_SENTENCE)


def _fail(sentence: str, exit_code: int) -> None:
    print(f"tracelab: {sentence}", file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
