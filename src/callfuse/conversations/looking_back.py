"""What a request's own history shows: the calls that were findings when they came, and the rounds whose results showed
a loop once they had come.

It is so whatever the ledger knows, in earlier timelines too: the same history always shows the same. But of one that
was looked over before, and showed nothing, only the newest round is new, whatever a client has since put in the place
of old results.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from callfuse.conversations.conversation import MANY, Conversation
from callfuse.detect import Engine
from callfuse.detect.same_error import are_enough, may_be_among
from callfuse.model import NOWHERE, Finding, Replayed, Round, Timeline, ToolCall

Found = tuple[Round, ToolCall, Finding]
"""A call that was a finding when it came, and its round."""
Late = tuple[Round, Finding]
"""A round that shows a loop, with what was found once its results were known."""


def look_back(conversation: Conversation) -> tuple[Sequence[Found], Sequence[Late]]:
    """What the history shows: calls, where a ladder warns of such, and rounds. The conversation takes note of it."""
    warns, shortest = conversation.settings.warns, conversation.settings.shortest_streak
    latest = conversation.history.rounds if conversation.chained else conversation.history.latest()
    newest = latest.at(0)
    examined, judged = conversation.known_to(newest) if newest else (NOWHERE, NOWHERE)
    calls: Sequence[Found] = ()
    rounds: Sequence[Late] = ()
    if warns:
        is_new = newest is None or newest.position > judged
        calls = tuple(_calls(conversation) if is_new else _calls_in_newest(conversation, latest))
    if shortest and conversation.chained:
        rounds = _in_chain(conversation)
    elif shortest and newest is not None:
        rounds = _in_newest(conversation, latest) if newest.position <= examined else _in_all(conversation, latest)
    conversation.looked_over(newest, is_calm=not rounds, judged=warns and not calls)
    return calls, rounds


def timelines(conversation: Conversation) -> Iterator[list[Round]]:
    """The rounds of each timeline of the history, newest first, their times unknown; of a chain what is known."""
    if conversation.chained:
        yield list(conversation.timeline)
        return
    rounds = conversation.history.rounds
    if newest := list(_apart(rounds) if conversation.is_merged else rounds):
        yield newest
    yield from conversation.history.earlier()


def _calls(conversation: Conversation) -> Iterator[Found]:
    for rounds in timelines(conversation):
        for at, round_ in enumerate(rounds):
            if round_.position != NOWHERE:
                yield from _judged(conversation, round_, rounds[at + 1 :])


def _calls_in_newest(conversation: Conversation, latest: Replayed[Round]) -> Iterator[Found]:
    newest, *_ = latest.slice(0, 1)
    return _judged(conversation, newest, _apart(islice(latest, 1, None)))


def _judged(conversation: Conversation, round_: Round, before: Iterable[Round]) -> Iterator[Found]:
    engine = _engine(conversation, before)
    if next(engine.suspects(), None) is not None:
        for call, finding in engine.judge_round(round_.calls):
            yield round_, call, finding


def _in_chain(conversation: Conversation) -> Sequence[Late]:
    newest = conversation.history.rounds.at(0)
    if newest is None:
        return _among(conversation)
    finding = Engine(conversation.timeline, conversation.settings).hindsight()
    return ((newest, finding),) if finding else ()


def _in_newest(conversation: Conversation, latest: Replayed[Round]) -> Sequence[Late]:
    if not conversation.may_fail_again(latest):
        return ()
    finding = _engine(conversation, _apart(latest)).hindsight()
    return ((latest.slice(0, 1)[0], finding),) if finding else ()


def _in_all(conversation: Conversation, latest: Replayed[Round]) -> Sequence[Late]:
    shortest = conversation.settings.shortest_streak
    few = latest.slice(0, shortest)
    if max(len(few), few[-1].position) < shortest:  # nor can there be a streak in earlier timelines
        return ()
    if conversation.request.length >= MANY and not are_enough(conversation.request.tools(), conversation.settings):
        return ()
    return _among(conversation)


def _among(conversation: Conversation) -> Sequence[Late]:
    late: list[Late] = []
    for rounds in timelines(conversation):
        if may_be_among(rounds, conversation.settings):
            findings = _engine(conversation, rounds).hindsights()
            late += [(round_, finding) for round_, finding in zip(rounds, findings, strict=True) if finding]
    return tuple(late)


def _engine(conversation: Conversation, rounds: Iterable[Round]) -> Engine:
    """An engine for the timeline that these rounds are, newest first, by themselves."""
    return Engine(Timeline(rounds, declares=conversation.request.declares), conversation.settings)


def _apart(rounds: Iterable[Round]) -> Iterator[Round]:
    """The same rounds by themselves: times, and what they remember of the rounds before, are the merged timeline's."""
    return (Round(one.calls, one.position) for one in rounds)
