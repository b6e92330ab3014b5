"""What is counted of each event: one table for the counts of a process, for metrics and for the page's rates.

`Counts` (`observe/counts.py`) counts by labels that may be any text, metrics (`observe/metrics.py`) by those of closed
sets (`observe/labels.py`), and rates (`observe/rates.py`) over time. Each reads its own column here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from callfuse.observe import events, labels
from callfuse.observe.events import Event, FindingSeen
from callfuse.policy.holdout import HOLDOUT

Series = tuple[str, ...]
"""The name of a counter among the metrics, and a value for each of its labels."""

_OF_RUNG: Final = {"warn": "warned", "block": "blocked"}
"""The rate of a rung; those that ask the model again are `steered`."""


def rate_of_rung(rung: str) -> str:
    """The rate in which a rung that was taken is counted."""
    return _OF_RUNG.get(rung, "steered")


def rate_of_course(result: str) -> str:
    """The rate in which is counted what a model did after a finding."""
    return f"then_{labels.one_of(labels.RESULTS, result)}"


def _limit_of(event: FindingSeen) -> str:
    return "hard" if event.verdict.finding.hard else "soft"


def _no_label(_: Event) -> str:
    return ""


class Row(NamedTuple):
    """What is counted of events of one kind.

    `name`: in `Counts`, empty if it is not counted there; `label`: of an event. `series`: of an event among
    the metrics; None without a counter. `rate`: the name of an event among the rates, empty if it does not count there.
    """

    name: str = ""
    label: Callable[[Any], str] = _no_label
    series: Callable[[Any], Series] | None = None
    rate: Callable[[Any], str] = _no_label


TABLE: Final[Mapping[type[Event], Row]] = {
    events.ExchangeEnded: Row(
        series=lambda event: ("exchanges", event.where.dialect, labels.outcome_of(event)),
        rate=lambda _: "exchanges",
    ),
    events.CallSeen: Row(
        series=lambda event: ("tool_calls", event.where.dialect, event.action),
        rate=lambda _: "calls",
    ),
    events.HoldEnded: Row(rate=lambda _: "holds"),
    FindingSeen: Row(
        "findings",
        lambda event: HOLDOUT if event.arm == HOLDOUT else event.action,
        lambda event: ("findings", event.verdict.finding.kind, _limit_of(event), event.action),
        lambda event: "" if event.again else "findings",
    ),
    events.ActionTaken: Row(rate=lambda event: rate_of_rung(event.rung)),
    events.CourseMended: Row(
        "mitigations",
        lambda event: f"{event.arm} {event.result}".lstrip(),
        lambda event: ("mitigations", event.result, labels.arm_of(event.arm)),
        lambda event: rate_of_course(event.result),
    ),
    events.FeedbackGiven: Row(
        "feedback",
        lambda event: f"{event.kind} {event.found}".rstrip(),
        lambda event: ("feedback", event.kind),
        lambda _: "feedback",
    ),
    events.FailedOpen: Row(
        "fail_open",
        lambda event: event.kind,
        lambda event: ("fail_open", labels.fail_open_cause(event.kind)),
        lambda _: "fail_open",
    ),
    events.NotGuarded: Row(
        "not_guarded", lambda event: event.cause, lambda event: ("not_guarded", event.cause), lambda _: "not_guarded"
    ),
    events.NotWatched: Row(
        "not_watched", lambda event: event.cause, lambda event: ("not_watched", event.cause), lambda _: "not_watched"
    ),
    events.NotAsked: Row("not_asked", lambda event: event.part),
    events.Refused: Row("refused", lambda event: event.what),
    events.FuseBlown: Row("blown", lambda event: event.where.dialect, lambda _: ("blown",), lambda _: "blown"),
    events.FuseReset: Row("resets"),
    events.LedgerDropped: Row(
        "ledger_dropped", lambda event: event.limit, lambda event: ("ledger_dropped", event.limit)
    ),
    events.CommandsRun: Row("commands", lambda event: "refused" if event.refused else "run"),
    events.HeaderIgnored: Row("ignored_headers", lambda event: event.header if event.known else "unknown"),
    events.CallbackFailed: Row("callback_errors", series=lambda _: ("callback_errors",)),
    events.DeliveryFailed: Row("webhook_failed", lambda event: event.cause),
    events.DeliveryDropped: Row("webhook_dropped", lambda event: event.why),
    events.StoreFailed: Row(
        "store_errors", lambda event: event.operation, lambda event: ("store_errors", event.operation)
    ),
    events.StoreWithoutLoop: Row("store_errors", lambda _: "loop", lambda _: ("store_errors", labels.OTHER)),
    events.StoreSkipped: Row("store_skipped", lambda event: event.operation),
}
"""Events of other kinds are not counted."""
