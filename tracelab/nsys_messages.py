"""What of the profiler's messages may be shown: they can hold paths and words of the traced program."""

from tracelab.capture.scrub_values import REMOVED, clean_diagnostic

WITHHELD = "a message of the profiler (withheld)"


def quoted(text: str) -> str:
    """The message, or the error code in it, in quotation marks if every word is the profiler's own; else WITHHELD."""
    said = clean_diagnostic(text.strip())
    return WITHHELD if said == REMOVED else f"“{' '.join(said.split())}”"
