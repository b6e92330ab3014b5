"""Define how each event is counted: one table for the counts of a process, for metrics and for the page's rates.

`Counts` (`observe/counts.py`) counts each event once, under a key with every distinction that a reader makes. For each
reader, a column turns the key into what it shows: a label with any text, the series of a metric, whose labels are
closed sets (`observe/labels.py`), or the name of a rate.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from callfuse.observe import events, labels
from callfuse.observe.events import Event, FindingSeen, TokensSpent
from callfuse.policy.holdout import HOLDOUT

Key = tuple[str, ...]
"""Distinguishes events of one kind."""
Series = tuple[str, ...]
"""The name of a counter among the metrics, and a value for each of its labels."""

_OF_RUNG: Final = {"warn": "warned", "block": "blocked"}
"""The rates of rungs; rungs that ask the model again count as `steered`."""


def rate_of_rung(rung: str) -> str:
    """Return the rate that counts a rung."""
    return _OF_RUNG.get(rung, "steered")


def rate_of_course(result: str) -> str:
    """Return the rate that counts what a model did after a finding."""
    return f"then_{labels.one_of(labels.RESULTS, result)}"


def rates_of(event: TokensSpent) -> dict[str, float]:
    """Return the tokens and cost of an answer, by the names of the rates, without zeros."""
    amounts = {
        "tokens": event.input_tokens + event.output_tokens,
        "estimated_tokens": event.estimated_tokens,
        "cost": event.cost,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _no_label(_: Key) -> str:
    return ""


def _first(key: Key) -> str:
    return key[0]


class Row(NamedTuple):
    """How events of one kind are counted.

    `key` returns an event's key, which the other functions take. `name`, `label`: in `Counts`; an empty name is not
    shown. `series`: the metric's series; None without a metric. `rate`: its name; empty without a rate.
    """

    key: Callable[[Any], Key] = lambda _: ()
    name: str = ""
    label: Callable[[Key], str] = _no_label
    series: Callable[[Key], Series] | None = None
    rate: Callable[[Key], str] = _no_label


def _key_of_finding(event: FindingSeen) -> Key:
    limit = "hard" if event.verdict.finding.hard else "soft"
    return (event.verdict.finding.kind, limit, event.action, event.arm, "again" if event.again else "")


TABLE: Final[Mapping[type[Event], Row]] = {
    events.ExchangeEnded: Row(
        attrgetter("where.dialect", "outcome"),
        series=lambda key: ("exchanges", *key),
        rate=lambda _: "exchanges",
    ),
    events.CallSeen: Row(
        attrgetter("where.dialect", "action"),
        series=lambda key: ("tool_calls", *key),
        rate=lambda _: "calls",
    ),
    events.HoldEnded: Row(rate=lambda _: "holds"),
    TokensSpent: Row(lambda event: ("estimate" if event.estimated_tokens else "vendor",), "spent", _first),
    FindingSeen: Row(
        _key_of_finding,
        "findings",
        lambda key: HOLDOUT if key[3] == HOLDOUT else key[2],
        lambda key: ("findings", *key[:3]),
        lambda key: "" if key[4] else "findings",
    ),
    events.LoopBegan: Row(
        lambda event: (event.found, event.arm),
        "loops",
        _first,
        lambda key: ("loops", key[0], labels.arm_of(key[1])),
        lambda _: "loops",
    ),
    events.ActionTaken: Row(lambda event: (event.rung,), rate=lambda key: rate_of_rung(key[0])),
    events.CourseMended: Row(
        attrgetter("arm", "result"),
        "mitigations",
        lambda key: " ".join(key).lstrip(),
        lambda key: ("mitigations", key[1], labels.arm_of(key[0])),
        lambda key: rate_of_course(key[1]),
    ),
    events.FeedbackGiven: Row(
        attrgetter("kind", "found"),
        "feedback",
        lambda key: " ".join(key).rstrip(),
        lambda key: ("feedback", key[0]),
        lambda _: "feedback",
    ),
    events.FailedOpen: Row(
        lambda event: (event.kind,),
        "fail_open",
        _first,
        lambda key: ("fail_open", labels.fail_open_cause(key[0])),
        lambda _: "fail_open",
    ),
    events.NotGuarded: Row(
        lambda event: (event.cause,), "not_guarded", _first, lambda key: ("not_guarded", *key), lambda _: "not_guarded"
    ),
    events.NotWatched: Row(
        lambda event: (event.cause,), "not_watched", _first, lambda key: ("not_watched", *key), lambda _: "not_watched"
    ),
    events.NotAsked: Row(lambda event: (event.part,), "not_asked", _first),
    events.Refused: Row(lambda event: (event.what,), "refused", _first),
    events.FuseBlown: Row(
        lambda event: (event.where.dialect,), "blown", _first, lambda _: ("blown",), lambda _: "blown"
    ),
    events.FuseReset: Row(name="resets"),
    events.LedgerDropped: Row(
        lambda event: (event.limit,), "ledger_dropped", _first, lambda key: ("ledger_dropped", *key)
    ),
    events.CommandsRun: Row(lambda event: ("refused" if event.refused else "run",), "commands", _first),
    events.HeaderIgnored: Row(lambda event: (event.header if event.known else "unknown",), "ignored_headers", _first),
    events.CallbackFailed: Row(name="callback_errors", series=lambda _: ("callback_errors",)),
    events.DeliveryFailed: Row(lambda event: (event.cause,), "webhook_failed", _first),
    events.DeliveryDropped: Row(lambda event: (event.why,), "webhook_dropped", _first),
    events.StoreFailed: Row(
        lambda event: (event.operation,), "store_errors", _first, lambda key: ("store_errors", *key)
    ),
    events.StoreWithoutLoop: Row(lambda _: ("loop",), "store_errors", _first, lambda _: ("store_errors", labels.OTHER)),
    events.StoreSkipped: Row(lambda event: (event.operation,), "store_skipped", _first),
    events.WorkerReplaced: Row(name="workers_replaced", series=lambda _: ("workers_replaced",)),
}
"""The row of each kind of event. Other kinds are not counted."""
