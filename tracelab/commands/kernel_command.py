"""What `profile` and `run` share: the options after a kernel's or workload's name are its own."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from tracelab.capture.recordings import resolve, split_arguments, workload_defaults
from tracelab.errors import CaptureUnavailableError, UsageError
from tracelab.registry import Leaf, leaves, literal, load

PROFILE_ONLY = ("--steps", "--graph")  # options of a kernel that `run` has no use for
_ARGUMENTS = "tracelab.arguments"  # where the leaf's own words wait in click's context


class KernelCommand(TyperCommand):
    """Takes the options of a bundled kernel or workload out of the command line before click looks for tracelab's."""

    # Newer typer brings its own click, so its classes have no name that works for every version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split the words after the leaf's name into its own and tracelab's."""
        at = self._leaf_index(ctx, args)
        if at is None:
            return self.parse_own(ctx, args)
        leaf = known_kernel(args[at])
        assert leaf is not None
        own, others = split_arguments(args[at + 1 :], workload_defaults(leaf.path))
        ctx.meta[_ARGUMENTS] = tuple(own)
        return self.parse_own(ctx, [*args[: at + 1], *others])

    def parse_own(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what is tracelab's."""
        return list(super().parse_args(ctx, args))

    def _leaf_index(self, ctx: Any, args: Sequence[str]) -> int | None:
        options = [param for param in self.get_params(ctx) if not getattr(param, "is_flag", False)]
        takes_value = {name for option in options for name in option.opts}
        for index, word in enumerate(args):
            if known_kernel(word) is not None and (index == 0 or args[index - 1] not in takes_value):
                return index
        return None


def kernel_arguments(ctx: Any) -> tuple[str, ...]:
    """The leaf's own words of the command line, in order."""
    words: tuple[str, ...] = ctx.meta.get(_ARGUMENTS, ())
    return words


def known_kernel(name: str) -> Leaf | None:
    """The bundled kernel or workload of that name, with `-` or `_` between its words; None if there is none."""
    return leaves("kernels").get(name.replace("_", "-"))


def require_variant(leaf: Leaf, arguments: Sequence[str]) -> None:
    """Raise UsageError for a variant that the kernel has not, naming those it has, and for words it does not know."""
    variants = leaf.variants
    if not variants:
        return
    asked = resolve(arguments, workload_defaults(leaf.path), leaf.name)["--variant"]
    if asked not in variants:
        raise UsageError(f"{leaf.name} has no variant {asked!r}; it has {', '.join(variants)}.")


def require_options(leaf: Leaf, arguments: Sequence[str]) -> None:
    """Raise UsageError for options that make no sense, whether the workload can run here or not.

    Decode steps import without torch and check their own. Of a kernel only zeros are told: what else its shape may be
    it knows when it runs.
    """
    defaults = workload_defaults(leaf.path)
    asked = resolve(arguments, defaults, leaf.name)
    if not leaf.variants:
        load(leaf).check(arguments)
        return
    allowed = {f"--{name.replace('_', '-')}" for name in literal(leaf.path, "ZERO_ALLOWED") or ()}
    zeros = [name for name, value in asked.items() if value == "0" and defaults[name] != "0" and name not in allowed]
    if zeros:
        raise UsageError(f"{leaf.name}: {zeros[0]} must be 1 or more.")


def require_packages(leaf: Leaf) -> None:
    """Raise CaptureUnavailableError where this Python lacks what the kernels are written in."""
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        raise CaptureUnavailableError(
            f"{leaf.name} needs {' and '.join(missing)}, which this Python has not; install the extra [gpu]."
        )
