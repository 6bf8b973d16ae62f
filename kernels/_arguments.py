"""Command-line options as all bundled programs read them: a wrong one is one sentence."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from tracelab.errors import UsageError


class Parser(argparse.ArgumentParser):
    """argparse, but a wrong option is one sentence instead of the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}; see --help.")


def whole_number(least: int) -> Callable[[str], int]:
    """The kind of an option that takes whole numbers from `least` on."""

    def kind(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return value

    return kind
