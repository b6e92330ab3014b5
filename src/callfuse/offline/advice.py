"""Advise, in words, what to do after a time of observing: turn callfuse on, change something first, or keep
observing."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from callfuse import __version__
from callfuse.offline.observed import LoopsOfTool, Observed
from callfuse.policy.settings import LoopSettings

LEAST_EXCHANGES: Final = 200
LEAST_SESSIONS: Final = 20
"""Fewer sessions are not enough: one loop more or less would change the answer."""
MOST_UNGUARDED: Final = 0.2
"""If a larger share of exchanges passes unguarded, this must be changed first."""
MOST_OF_ONE: Final = 0.5
"""If one tool has a larger share of all loops, and at least `LOOKED_AT` of them, somebody should look at it."""
LOOKED_AT: Final = 10
MOST_LOOPING: Final = 0.2
"""If a larger share of sessions has a loop, somebody should look at some of them."""
SHOWN: Final = 10
"""Rows, and examples, that are printed."""
TURN_ON: Final = "mode: chance_then_block, in tool_call_loop"


Recommendation = Literal["observe", "change", "look", "turn_on", "none"]
"""The advice in one word: keep observing, change something first, look at findings first, turn it on, or nothing."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice, in one word and in one sentence, and its consequences."""

    recommendation: Recommendation
    answer: str
    steps: tuple[str, ...] = ()


def advise(observed: Observed, settings: LoopSettings) -> Advice:
    """Return the advice for an observed log. `settings`: those with the limits in use."""
    few = _too_few(observed)
    if few:
        return Advice("observe", few)
    return _first_change(observed, settings) or _turn_on(observed)


def _too_few(observed: Observed) -> str:
    exchanges, sessions = observed.exchanges, len(observed.sessions)
    if exchanges >= LEAST_EXCHANGES and sessions >= LEAST_SESSIONS:
        return ""
    return (
        f"No recommendation: {exchanges:,} exchanges of {sessions:,} sessions are too few; observe until there are "
        f"{LEAST_EXCHANGES} of {LEAST_SESSIONS}."
    )


def _first_change(observed: Observed, settings: LoopSettings) -> Advice | None:
    """Return the advice to change something, or to look at something, before callfuse is turned on; None if there is
    none."""
    unguarded = observed.unguarded.total()
    if unguarded > MOST_UNGUARDED * observed.exchanges:
        causes = ", ".join(f"{cause} ({many:,})" for cause, many in observed.unguarded.most_common(3))
        share = f"{unguarded / observed.exchanges:.0%}"
        answer = f"Change this first, because {share} of the exchanges passed unguarded: {causes}."
        return Advice("change", answer, _TROUBLE)
    feedback = observed.feedback()
    _, raised = feedback.apply(settings)
    if raised:
        why = f"people rated {feedback.wrong:,} of {len(feedback.said):,} findings as no loop"
        return Advice("change", f"Change this first, because {why}:", tuple(f"per_tool, {one}" for one in raised))
    if observed.rated:
        return None
    by_tool: Counter[str] = Counter()
    for (name, _), one in observed.of_tool.items():
        by_tool[name] += one.loops
    tool, most = by_tool.most_common(1)[0] if by_tool else ("", 0)
    if most >= LOOKED_AT and most > MOST_OF_ONE * observed.loops:
        why = f"{most:,} of {observed.loops:,} loops are calls of {tool}, and nobody has rated one"
        poller = f"if {tool} waits for something outside, set per_tool: {{{tool}: {{poller: true}}}}"
        return Advice("look", f"Look at this first, because {why}.", (poller, *_to_rate(observed)))
    if len(observed.looping) > MOST_LOOPING * len(observed.sessions):
        share = f"{len(observed.looping) / len(observed.sessions):.0%}"
        why = f"{share} of the sessions have a loop, and nobody has rated one"
        return Advice("look", f"Look at this first, because {why}.", tuple(_to_rate(observed)))
    return None


_TROUBLE: Final = ("docs/observing.md has the causes; docs/troubleshooting.md says what to do",)


def _turn_on(observed: Observed) -> Advice:
    if observed.loops:
        why = (
            f"{observed.loops:,} loops would have been stopped, in {len(observed.looping):,} of "
            f"{len(observed.sessions):,} sessions"
        )
        rate = () if observed.rated else tuple(_to_rate(observed))
        return Advice("turn_on", f"Turn it on ({TURN_ON}), because {why}.", rate)
    if observed.acted:
        return Advice("none", f"Change nothing: it is on, and has acted on {observed.acted:,} findings.")
    return Advice("turn_on", f"Turn it on ({TURN_ON}): it would have changed none of {observed.exchanges:,} exchanges.")


def _to_rate(observed: Observed) -> Iterator[str]:
    """Yield the commands that rate the longest loops."""
    rows = _rows(observed)
    for (tool, kind), one in [row for row in rows if row[1].example][:3]:
        rate = f"callfuse feedback {one.example} --kind true_positive (or false_positive)"
        yield f"{kind} of {tool}, count {one.longest}: {rate}"


def _rows(observed: Observed) -> list[tuple[tuple[str, str], LoopsOfTool]]:
    """Return the loops by tool and kind, those with the most findings first."""
    return sorted(observed.of_tool.items(), key=lambda row: -row[1].calls)


def report_object(observed: Observed, advice: Advice) -> dict[str, Any]:
    """Return the report for programs. `docs/observing.md` describes its keys."""
    said = observed.feedback()
    return {
        "callfuse": __version__,
        "recommendation": advice.recommendation,
        "answer": advice.answer,
        "steps": [*advice.steps],
        "from": observed.first,
        "to": observed.last,
        "exchanges": observed.exchanges,
        "sessions": len(observed.sessions),
        "looping_sessions": len(observed.looping),
        "unguarded": dict(observed.unguarded.most_common()),
        "failed_open": observed.failed_open,
        "loops": observed.loops,
        "loops_by_rung": dict(observed.would.most_common()),
        "withheld_calls": observed.withheld,
        "acted_findings": observed.acted,
        "rated_findings": len(said.said),
        "rated_no_loop": said.wrong,
        "tools": [
            {
                "tool": tool,
                "kind": kind,
                "loops": one.loops,
                "findings": one.calls,
                "withheld": one.withheld,
                "longest": one.longest,
                "example": one.example,
            }
            for (tool, kind), one in _rows(observed)
        ],
    }


def report_lines(observed: Observed, advice: Advice) -> Iterator[str]:
    """Yield the lines of the report: the answer, then the figures."""
    yield advice.answer
    yield from (f"  {step}" for step in advice.steps)
    yield ""
    yield f"From {observed.first or '?'} to {observed.last or '?'}:"
    yield f"  exchanges: {observed.exchanges:,}, of {len(observed.sessions):,} sessions"
    if observed.unguarded:
        yield f"  passed unguarded: {observed.unguarded.total():,}"
    if observed.failed_open:
        yield f"  causes of calls that passed unjudged: {observed.failed_open:,} (the log has an ERROR for each)"
    rungs = ", ".join(f"{many:,} by {rung}" for rung, many in observed.would.most_common())
    yield f"  loops that would have been acted on: {observed.loops:,}{f' ({rungs}, at first)' if rungs else ''}"
    if observed.loops:
        yield f"  calls of them that have run and would have been withheld: {observed.withheld:,} at most"
    if observed.acted:
        yield f"  findings that were acted on: {observed.acted:,}"
    said = observed.feedback()
    yield f"  findings that people rated: {len(said.said):,}, of these no loop: {said.wrong:,}"
    rows = _rows(observed)
    if rows:
        yield ""
        yield f"{'tool':32} {'kind':20} {'loops':>7} {'calls':>7} {'longest':>8}"
    for (tool, kind), one in rows[:SHOWN]:
        yield f"{tool[:32]:32} {kind[:20]:20} {one.loops:7,} {one.calls:7,} {one.longest:8,}"
    if len(rows) > SHOWN:
        yield f"and {len(rows) - SHOWN:,} more"
    if rows:
        yield "loops: runs of findings; calls: the findings in them; longest: the highest count of one."
