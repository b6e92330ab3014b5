"""The texts that a request's results carry to the model: warnings, and notes on calls that were withheld beside them.

A warning is a pure function of the conversation: every executed call that was a finding when it came has one, and so
has every round whose results show a loop, in earlier timelines too, so that the same history always reads the same and
prompt caches keep hitting. What a callback has changed is kept with the call, and wins.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from callfuse.conversations.conversation import Conversation
from callfuse.conversations.looking_back import Found, Late, look_back
from callfuse.dialects.base import Note
from callfuse.policy import texts
from callfuse.policy.ladder import warned


def notes_for(conversation: Conversation) -> list[Note]:
    """What is to be added to the results of a request."""
    calls, rounds = look_back(conversation)
    notes = [*_warnings(conversation, calls)] if calls else []
    if rounds:
        warned = {note.position for note in notes}
        notes += (note for note in _in_hindsight(conversation, rounds) if note.position not in warned)
    for (id_, signature, before), text in conversation.notes.items():
        there = next(islice(conversation.history.calls_alike(id_, signature), before, None), None)
        if there is None:
            continue
        if text:
            notes.append(Note(*there, text))
        else:
            notes = [note for note in notes if (note.position, note.call.signature) != (there[0], signature)]
    return notes


def _warnings(conversation: Conversation, found: Iterable[Found]) -> Iterator[Note]:
    """A note for each call that was found looping when it came, where the ladder of its tool warns of it."""
    for round_, call, finding in found:
        if warned(finding, conversation.settings.for_tool(call.full_name).settings.ladder):
            text = texts.warning(call, finding, conversation.settings, conversation.request.model)
            yield Note(round_.position, call, text)


def _in_hindsight(conversation: Conversation, late: Iterable[Late]) -> Iterator[Note]:
    """A note on the last result of each round that shows a loop, whatever the ladder of its tool does but observe."""
    for round_, finding in late:
        call = next(call for call in reversed(round_.calls) if not call.withheld and call.outcome is not None)
        if not conversation.settings.for_tool(call.full_name).settings.observes:
            text = texts.warning(call, finding, conversation.settings, conversation.request.model)
            yield Note(round_.position, call, text)
