"""Captures made from the steps of a real one: steps drawn with replacement, and phases made slower."""

from dataclasses import replace

import numpy as np

from tracelab.compare.side import Capture
from tracelab.step_samples import StepSamples


def redrawn(source: Capture, steps: int, rng: np.random.Generator) -> Capture:
    """A capture of `steps` steps, each one of the source's, with all its phases and kernels."""
    samples = source.samples
    drawn = rng.integers(0, len(samples.busy_ns), steps)
    periods = rng.integers(0, len(samples.step_ns), steps)
    made = StepSamples(
        step_ns=samples.step_ns[periods],
        busy_ns=samples.busy_ns[drawn],
        phases={phase: times[drawn] for phase, times in samples.phases.items()},
        places=replace(
            samples.places, time_ns=samples.places.time_ns[drawn], behind_ns=samples.places.behind_ns[drawn]
        ),
    )
    return replace(source, samples=made)


def with_spread(source: Capture, phase: str, spread: float) -> Capture:
    """The same capture with one phase's steps stretched about their median to a standard deviation of `spread`."""
    times = source.samples.phases[phase]
    middle = float(np.median(times))
    wanted = middle + (times - middle) * (spread * middle / float(times.std()))
    return scaled(source, phase, wanted / times)


def scaled(source: Capture, phase: str, factor: float | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Capture:
    """The same capture with one phase `factor` times as long: one number, or one for each step."""
    samples, places = source.samples, source.samples.places
    changed = samples.phases[phase] * factor
    mine = np.array([name == phase for name in places.phase])
    per_step = np.broadcast_to(np.asarray(factor, np.float64), samples.busy_ns.shape)[: len(places.time_ns)]
    moved, behind = (
        np.where(mine[None, :], times * per_step[:, None], times) for times in (places.time_ns, places.behind_ns)
    )
    return replace(
        source,
        samples=replace(
            samples,
            busy_ns=samples.busy_ns + changed - samples.phases[phase],
            phases={**samples.phases, phase: changed},
            places=replace(places, time_ns=moved, behind_ns=behind),
        ),
    )
