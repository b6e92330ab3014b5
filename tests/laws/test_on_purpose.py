"""Equal calls that are wanted, and the loop that looks like them, on the wire: dice, sub-agents, people who are asked,
tools that change something.
"""

from typing import Any, Final

import pytest

from tests.laws.test_hidden_loops import OTHER, five_dialects, is_acted_on, is_warned
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Meeting, ask, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User, seen
from tests.support.plain import saying

WANTED: Final = {"three dice": ("roll", 3), "four sub-agents": ("Task", 4), "five mails": ("send_email", 5)}
PEOPLE: Final = ("ask_user", "AskUserQuestion", "ask_followup_question", "mcp__slack__ask_human", "request_user_input")
NO_PEOPLE: Final = ("ask_oracle", "user_lookup", "request_review")
wanted = pytest.mark.parametrize(("tool", "count"), WANTED.values(), ids=WANTED)


def equal(tool: str, count: int) -> list[Call]:
    """The same call so many times, each with an id of its own."""
    return [Call(f"call_{tool}{at}Q", tool, ('{"prompt": ', '"Look for zebras"}')) for at in range(count)]


def after(tool: str, *results: str) -> History:
    """A conversation in which the call has brought these results, one a round."""
    calls = [Call(f"call_{tool}_b{at}", tool, one.pieces) for at, one in enumerate(equal(tool, len(results)))]
    rounds = [Round((call,), (result,)) for call, result in zip(calls, results, strict=True)]
    return History((User("See to it."), *rounds))


def met(kit: DialectKit, history: History, *calls: Call, stream: bool = True, **settings: Any) -> Meeting:
    """The model makes these calls in one answer, and another where it is asked again."""
    replies = [reply(kit, saying(*calls), stream=stream), reply(kit, saying(OTHER, tag="next"), stream=stream)]
    known = {"detectors": {"unknown_tool": False}}
    return meet(ask(kit, history, stream=stream), replies, "chance_then_block", **known, **settings)


@five_dialects
@streamed_and_whole
@wanted
def test_equal_calls_of_one_answer_are_wanted(kit: DialectKit, stream: bool, tool: str, count: int) -> None:
    """Byte for byte, as long as no earlier round has brought the call."""
    calls = equal(tool, count)
    meeting = met(kit, after(tool), *calls, stream=stream)
    assert meeting.body == reply(kit, saying(*calls), stream=stream).body
    assert len(meeting.app.heard) == 1


@five_dialects
@streamed_and_whole
@wanted
def test_the_sixth_is_a_flood(kit: DialectKit, stream: bool, tool: str, count: int) -> None:
    """Five of eight go, whatever the tool is called."""
    calls = equal(tool, 8)
    meeting = met(kit, after(tool), *calls, stream=stream)
    (view,) = kit.read(meeting.body, stream=stream)
    assert view.calls == tuple(map(seen, calls[:5]))


@five_dialects
@wanted
def test_what_an_earlier_round_has_brought_is_no_news(kit: DialectKit, tool: str, count: int) -> None:
    """Two go, as a third round with the call would be a loop: it has brought its result already."""
    calls = equal(tool, count)
    meeting = met(kit, after(tool, "done").and_then(Round((OTHER,), ("text",))), *calls)
    (view,) = kit.read(meeting.body, stream=True)
    assert view.calls == tuple(map(seen, calls[:2]))


@five_dialects
@pytest.mark.parametrize("tool", PEOPLE)
def test_people_are_asked_by_many_names(kit: DialectKit, tool: str) -> None:
    """Nothing is said of it, however often."""
    meeting = met(kit, after(tool, *["yes"] * 12), *equal(tool, 1))
    assert not is_acted_on(meeting)
    assert not is_warned(kit, meeting)


@five_dialects
@pytest.mark.parametrize("tool", NO_PEOPLE)
def test_a_name_that_only_looks_like_it(kit: DialectKit, tool: str) -> None:
    """The third call is withheld."""
    assert is_acted_on(met(kit, after(tool, "yes", "yes"), *equal(tool, 1)))


@five_dialects
def test_what_is_withheld_was_not_done_again(kit: DialectKit) -> None:
    """The model is told so in the call's place: it never reads the earlier result as if it were of this call."""
    call = equal("send_email", 1)[0]
    meeting = met(kit, after("send_email", "Email sent.", "Email sent."), call)
    assert len(meeting.app.heard) == 2
    told = [text for _, text in kit.results(meeting.app.heard[1].body)]
    assert told[:2] == ["Email sent."] * 2
    assert told[2].startswith(f"{MARK} This call was not run.")
    assert call.id.encode() not in meeting.body


@five_dialects
@pytest.mark.parametrize("own", [{"state_changing": ["send_*"]}, {"per_tool": {"send_email": {"changes_state": True}}}])
def test_whoever_says_that_each_call_changes_something(kit: DialectKit, own: dict[str, Any]) -> None:
    """With `changes_state` six mails are progress. A tool that is state-changing ends the streaks of others alone."""
    meeting = met(kit, after("send_email", *["Email sent."] * 5), *equal("send_email", 1), **own)
    assert is_acted_on(meeting) is ("state_changing" in own)
    assert not is_acted_on(met(kit, after("send_email", "Email sent."), *equal("send_email", 1), **own))
