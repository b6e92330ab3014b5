"""What tuning found, for people: a table of the sources, and a few lines on each."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from callfuse.offline.showing import short
from callfuse.offline.tuning.conformal import needed
from callfuse.offline.tuning.sources import Source
from callfuse.offline.tuning.trial import Trial
from callfuse.offline.tuning.tuned import CannotTuneError, Tuned

Result = tuple[str, Source, Tuned | CannotTuneError]

NOTES = (
    "Held out: one half of the successful runs sets a line and the other is judged by it, means over all halves. "
    "good: the share of them that is acted on; saved: calls of failed runs from the first one acted on to the end. "
    "by length: a line on the number of calls alone, for the same share.",
    "The settings rest on all successful runs. What is promised holds for runs of the same agent, model and kind of "
    "task, counted once each; what the model would have done instead of a withheld call, nobody knows.",
)


def report(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Everything, part by part."""
    if any(isinstance(result, Tuned) for _, _, result in results):
        yield _table(results)
        yield from (Text(note, "dim") for note in NOTES)
    for name, source, result in results:
        yield Text()
        yield Text(short(name), "bold")
        yield from (Text(f"  {line}") for line in _lines(source, result))


def _table(results: Sequence[Result]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    shown.add_column("source", no_wrap=True)
    for heading in ("good runs", "failed runs", "good", "saved", "by length: good", "saved"):
        shown.add_column(heading, justify="right", vertical="bottom")
    for name, source, result in results:
        found = result.trials if isinstance(result, Tuned) else None
        shown.add_row(
            short(name),
            f"{len(source.good):,}",
            f"{len(source.failed):,}",
            *_shares(source, found and found.scale),
            *_shares(source, found and found.length),
        )
    return shown


def _shares(source: Source, trial: Trial | None) -> tuple[str, str]:
    if trial is None:
        return "-", "-"
    calls = sum(run.calls for run in source.failed)
    return f"{trial.acted:.1%}", f"{trial.saved / calls:.1%}" if calls else "-"


def _lines(source: Source, result: Tuned | CannotTuneError) -> Iterator[str]:
    if isinstance(result, CannotTuneError):
        yield f"Not tuned: {result}."
        return
    yield result.promise
    yield ", ".join(f"{name}: {limit}" for name, limit in result.limits.items() if limit)
    if result.trials is None:
        yield f"Not tried: that takes {2 * needed(result.alpha):,} successful runs, half of them to set a line."
    elif not source.failed:
        yield "What it saves is unknown: no run failed."
    elif not result.trials.scale.saved:
        yield "It saves nothing in the failed runs."
    elif result.trials.scale.saved <= result.trials.length.saved:
        yield f"It saves no more than a limit on the number of calls: max_calls: {result.max_calls} promises as much."
    if source.unlabelled:
        yield f"{source.unlabelled:,} of its runs do not say whether they succeeded, and count for nothing."
