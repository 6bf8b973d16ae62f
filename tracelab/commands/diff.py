"""`tracelab diff`: what changed between two traces, judged against measured noise; several are a ladder."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tracelab import quantities
from tracelab.capture.folder import traces_of
from tracelab.commands.reading_line import reading_line
from tracelab.commands.shared import (
    FACTS,
    OUTPUT,
    READING,
    SELECTION,
    facts_of,
    format_leaf,
    keep_input,
    render_as,
    selection_of,
    write,
)
from tracelab.errors import CheckFailedError, InputError, NotComparableError, UsageError
from tracelab.options import Selection

if TYPE_CHECKING:
    from tracelab.compare.options import DiffOptions
    from tracelab.compare.side import Side
    from tracelab.difference import Diff

HELP = "What changed between two traces, and is it more than noise? More than two are a ladder."
_PANEL = "Noise and verdict"
_MANY = ("--aa", "--aa-after")  # take every word up to the next option


class DiffCommand(TyperCommand):
    """Lets `--aa A B` take several files, as the shell expands `--aa runs/*.sqlite`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its words, which is what the parser knows."""
        return super().parse_args(ctx, _spread(args))


def _spread(args: Sequence[str]) -> list[str]:
    found: list[str] = []
    current = ""
    for i, word in enumerate(args):
        if word in _MANY:
            current = word
            found += [word] * (i + 1 == len(args) or args[i + 1].startswith("-"))  # no file: the parser says so
        elif word.startswith("-"):
            current = ""
            found.append(word)
        else:
            found += [current, word] if current else [word]
    return found


def _option(name: str, kind: Any, default: Any, help_text: str, metavar: str | None = None) -> Parameter:
    flag = f"--{name.replace('_', '-')}"
    declared = typer.Option(
        flag, help=help_text, metavar=metavar, rich_help_panel=_PANEL, show_default=default is not None
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared])


_TRACES = Annotated[
    list[Path] | None,
    typer.Argument(metavar="BEFORE AFTER…", help="Traces, or folders of `profile --repeat`; three or more: a ladder."),
]
PARAMETERS = (
    Parameter("traces", Parameter.KEYWORD_ONLY, default=None, annotation=_TRACES),
    _option("aa", list[Path] | None, None, "More captures of BEFORE's program: how far do they differ?", "FILE…"),
    _option("aa_after", list[Path] | None, None, "More captures of AFTER's program.", "FILE…"),
    _option("steps_after", str | None, None, "Steps of AFTER, where they are named otherwise.", "REGEX"),
    _option("control", str | None, None, "Phases that nothing touched; else those with the same kernels.", "REGEX"),
    _option("phase", str | None, None, "Look only at these phases.", "REGEX"),
    _option("kernel", str | None, None, "Look only at these kernels; they count for the exit code.", "REGEX"),
    _option("fail_above", str | None, None, "Let smaller regressions pass: 3%.", "SHARE"),
    _option("force", bool, False, "Compare what is not comparable."),
    *OUTPUT,
    *SELECTION,
    *FACTS,
    *READING,
)  # fmt: skip


def run(traces: Sequence[Path] | None, **values: Any) -> None:
    """Compare and print; raises CheckFailedError for a regression, NotComparableError where nothing can be said."""
    format_leaf(values["format"])
    options = options_of(values)
    groups = _groups(traces or (), values)
    for path in (path for group in groups for path in group):
        keep_input(path, values["output"])
    from tracelab.compare.compare import compare, compare_ladder

    sides = _loaded(groups, values)
    if len(sides) > 2:
        ladder = compare_ladder(sides, options)
        write(render_as("ladder", ladder, values), values["output"])
        _end([*ladder.rungs, ladder.whole], ladder.whole, options)
        return
    diff = compare(sides[0], sides[1], options)
    write(render_as("diff", diff, values), values["output"])
    _end([diff], diff, options)


def options_of(values: Mapping[str, Any]) -> "DiffOptions":
    """The options of a comparison; raises UsageError for one that cannot be read."""
    from tracelab.compare.options import DiffOptions

    return DiffOptions(
        controls=_pattern("--control", values["control"]),
        phase=_pattern("--phase", values["phase"]),
        kernel=_pattern("--kernel", values["kernel"]),
        fail_above=quantities.percentage("--fail-above", values["fail_above"]),
        force=values["force"],
    )


def _pattern(option: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is not a regular expression ({error}).") from error


def _groups(traces: Sequence[Path], values: Mapping[str, Any]) -> list[list[Path]]:
    """The captures of each side. Raises UsageError for fewer than two traces, and for --aa beside a ladder."""
    if len(traces) < 2:
        raise UsageError("Give the trace before and the trace after: tracelab diff BEFORE AFTER.")
    more = [list(values["aa"] or ()), list(values["aa_after"] or ())]
    if len(traces) > 2 and (any(more) or values["steps_after"]):
        raise UsageError(
            "--aa, --aa-after and --steps-after belong to two traces; a ladder takes folders of `profile --repeat`."
        )
    for other, mine in ((traces[1], more[0]), (traces[0], more[1])):
        both = {path.resolve() for path in traces_of(other)} & {path.resolve() for path in _all(mine)}
        if both:
            raise UsageError(f"{both.pop()} cannot be a capture of both sides.")
    more += [[]] * (len(traces) - 2)
    return [_distinct([*traces_of(path), *_all(others)]) for path, others in zip(traces, more, strict=True)]


def _all(paths: Sequence[Path]) -> list[Path]:
    return [trace for path in paths for trace in traces_of(path)]


def _distinct(paths: Sequence[Path]) -> list[Path]:
    """Each capture once: the same file twice would pretend that captures do not differ."""
    return list({path.resolve(): path for path in paths}.values())


def _loaded(groups: Sequence[Sequence[Path]], values: Mapping[str, Any]) -> "list[Side]":
    """Every side. Raises NotComparableError, after saying what can be said of the others, where one has no GPU work."""
    from tracelab.compare.compare import nothing_to_compare

    selection = selection_of(values)
    after = replace(selection, steps=values["steps_after"] or selection.steps)
    sides: list[Side | None] = []
    empty: list[NotComparableError] = []
    for i, group in enumerate(groups):
        try:
            sides.append(_side(group, after if i else selection, values))
        except NotComparableError as error:
            sides.append(None)
            empty.append(error)
    if empty:
        outcome = nothing_to_compare(groups, sides, str(empty[0]))
        write(render_as("diff", outcome, values), values["output"])
        raise empty[0]
    return [side for side in sides if side is not None]


def _side(group: Sequence[Path], selection: "Selection", values: Mapping[str, Any]) -> "Side":
    from tracelab.compare.load import load_side

    try:
        with reading_line():
            return load_side(group, selection, facts_of(values), values["nsys"])
    except (InputError, UsageError) as error:
        if values["steps_after"] is not None and selection.steps == values["steps_after"]:
            raise type(error)(str(error).replace("--steps ", "--steps-after ", 1)) from error
        raise


def _end(diffs: "Sequence[Diff]", whole: "Diff", options: "DiffOptions") -> None:
    """The exit code: 4 where a pair is not comparable and that was not forced, 3 for a regression of the whole."""
    for diff in diffs:
        if not diff.comparable and not options.force:
            said = " ".join(reason.message for reason in diff.reasons)
            raise NotComparableError(f"not comparable: {said} --force compares all the same.")
    if whole.regressed:
        raise CheckFailedError(f"slower beyond the noise: {', '.join(whole.regressed)}.")
