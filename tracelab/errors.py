"""Every error a user can meet, each with its exit code. Raised anywhere, caught once in `tracelab.__main__`."""


class TracelabError(Exception):
    """Base: one sentence that says what, why and what to do next."""

    exit_code = 1


class InputError(TracelabError):
    """The input cannot be read or analysed."""

    exit_code = 1


class NoGpuWorkError(InputError):
    """The trace holds no GPU work at all."""


class UsageError(TracelabError):
    """The command line makes no sense."""

    exit_code = 2


class CheckFailedError(TracelabError):
    """A regression, a budget or a check failed."""

    exit_code = 3


class NotComparableError(TracelabError):
    """The traces cannot be compared."""

    exit_code = 4


class CaptureUnavailableError(TracelabError):
    """Nothing can be captured on this machine: no GPU, no nsys, or no importer."""

    exit_code = 5
