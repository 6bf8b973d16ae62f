"""A trace without the NVTX ranges that the user does not want to see."""

import dataclasses
import re

from tracelab.attribution import ranges_named
from tracelab.errors import UsageError
from tracelab.trace import Trace


def without_ranges(trace: Trace, pattern: str | None) -> Trace:
    """`trace` without the ranges whose full name `pattern` matches anywhere: they make no step and no phase.

    Raises UsageError for a pattern that is no regular expression.
    """
    if pattern is None:
        return trace
    try:
        unwanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--exclude {pattern!r} is not a regular expression ({error}).") from error
    kept = ~ranges_named(trace, unwanted)
    columns = {f.name: getattr(trace.ranges, f.name)[kept] for f in dataclasses.fields(trace.ranges)}
    return dataclasses.replace(trace, ranges=dataclasses.replace(trace.ranges, **columns))
