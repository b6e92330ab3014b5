"""What a request's own history shows: the calls that were findings when they came, and the rounds whose results showed
a loop once they had come.

It is so whatever the ledger knows, in earlier timelines too: the same history always shows the same. But of one that
was looked over before, and showed nothing, only the newest round is new.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from callfuse.detect import Engine
from callfuse.detect.same_error import are_enough, may_be_among
from callfuse.model import NOWHERE, Finding, Replayed, Round, Timeline, ToolCall
from callfuse.sessions.conversation import MANY, Conversation


def timelines(conversation: Conversation) -> Iterator[list[Round]]:
    """The rounds of each timeline of the history, newest first, their times unknown; of a chain what is known."""
    if conversation.chained:
        yield list(conversation.timeline)
        return
    rounds = conversation.history.rounds
    if newest := list(_apart(rounds) if conversation.is_merged else rounds):
        yield newest
    yield from conversation.history.earlier()


def found(conversation: Conversation) -> Iterator[tuple[Round, ToolCall, Finding]]:
    """The calls that were findings when they came, with their rounds."""
    if not conversation.chained:
        latest = conversation.history.latest()
        newest = latest.at(0)
        if newest and newest.position <= conversation.judged:
            yield from _judged(conversation, newest, _apart(islice(latest, 1, None)))
            return
    for rounds in timelines(conversation):
        for at, round_ in enumerate(rounds):
            if round_.position != NOWHERE:
                yield from _judged(conversation, round_, rounds[at + 1 :])


def hindsight(conversation: Conversation) -> Sequence[tuple[Round, Finding]]:
    """The rounds whose results show a loop, each with what was found once its results were known."""
    shortest, length = conversation.settings.shortest_streak, conversation.request.length
    if conversation.chained:
        return _in_chain(conversation) if shortest else ()
    if not shortest or length < shortest:
        return ()
    latest = conversation.history.latest()
    newest = latest.at(0)
    if newest is None:
        return ()
    if newest.position <= conversation.examined:
        finding = _in_newest(conversation, latest)
        return ((newest, finding),) if finding else ()
    few = latest.slice(0, shortest)
    if max(len(few), few[-1].position) < shortest:  # nor can there be a streak in earlier timelines
        return ()
    if length >= MANY and not are_enough(conversation.request.tools(), conversation.settings):
        return ()
    return _among(conversation, timelines(conversation))


def _in_chain(conversation: Conversation) -> Sequence[tuple[Round, Finding]]:
    newest = conversation.history.rounds.at(0)
    if newest is None:
        return _among(conversation, timelines(conversation))
    finding = Engine(conversation.timeline, conversation.settings).hindsight()
    return ((newest, finding),) if finding else ()


def _in_newest(conversation: Conversation, rounds: Replayed[Round]) -> Finding | None:
    if not conversation.may_fail_again(rounds):
        return None
    return _engine(conversation, _apart(rounds)).hindsight()


def _among(conversation: Conversation, all_of_them: Iterable[list[Round]]) -> Sequence[tuple[Round, Finding]]:
    late: list[tuple[Round, Finding]] = []
    for rounds in all_of_them:
        if may_be_among(rounds, conversation.settings):
            findings = _engine(conversation, rounds).hindsights()
            late += [(round_, finding) for round_, finding in zip(rounds, findings, strict=True) if finding]
    return tuple(late)


def _judged(
    conversation: Conversation, round_: Round, before: Iterable[Round]
) -> Iterator[tuple[Round, ToolCall, Finding]]:
    engine = _engine(conversation, before)
    if next(engine.suspects(), None) is not None:
        for call, finding in engine.judge_round(round_.calls):
            yield round_, call, finding


def _engine(conversation: Conversation, rounds: Iterable[Round]) -> Engine:
    """An engine for the timeline that these rounds are, newest first, by themselves."""
    return Engine(Timeline(rounds, declares=conversation.request.declares), conversation.settings)


def _apart(rounds: Iterable[Round]) -> Iterator[Round]:
    """The same rounds by themselves: times, and what they remember of the rounds before, are the merged timeline's."""
    return (Round(one.calls, one.position) for one in rounds)
