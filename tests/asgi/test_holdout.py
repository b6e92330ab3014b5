"""In a holdout findings are only observed, so that the effect of acting on them can be measured."""

import pytest

from callfuse.observe.counts import Counts
from callfuse.observe.events import ActionTaken, CourseMended, FindingSeen
from callfuse.policy.holdout import GUARDED, HOLDOUT, arm_of
from callfuse.policy.settings import LoopSettings
from tests.asgi.test_mending import CHAT, TALK, Talk, loop, other
from tests.laws.test_in_hindsight import LIMIT, failing, next_call
from tests.support.asgi import JSON_REQUEST, Headers
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, every_dialect, given_log, streamed_and_whole
from tests.support.plain import RESULT, saying

SESSIONS = 4000


def of_session(name: str) -> Headers:
    """The headers of a client that names its session."""
    return (*JSON_REQUEST, (b"x-callfuse-session-id", name.encode()))


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_share_of_sessions(share: float) -> None:
    """About so many are in it; each is always in the same arm, and none is where there is no holdout."""
    settings = LoopSettings(holdout=share)
    arms = [arm_of(settings, b"key", f"session {at}").name for at in range(SESSIONS)]
    assert abs(arms.count(HOLDOUT) / SESSIONS - share) < 0.03
    assert set(arms) <= {HOLDOUT, GUARDED}
    assert arms == [arm_of(settings, b"key", f"session {at}").name for at in range(SESSIONS)]
    assert arm_of(LoopSettings(), b"key", "session 1").name == ""


def test_a_larger_holdout_has_all_of_a_smaller() -> None:
    """So that a share can be raised without mixing what was measured; other clients have other sessions."""
    small, large = LoopSettings(holdout=0.2), LoopSettings(holdout=0.4)
    names = [f"session {at}" for at in range(500)]
    held = {name for name in names if arm_of(small, b"key", name).name == HOLDOUT}
    assert held < {name for name in names if arm_of(large, b"key", name).name == HOLDOUT}
    assert held != {name for name in names if arm_of(small, b"other", name).name == HOLDOUT}


@pytest.mark.slow
@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["warn", "chance_then_block", "block", "graduated"])
async def test_nothing_is_done(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Every call goes out as it came, no result has a word of callfuse's, and the fuse does not blow."""
    talk = Talk(kit, ladder, stream=stream, loop={"holdout": 1.0})
    for number in range(8):
        await talk.step(loop(number))
        assert MARK not in str(talk.app.heard[0].body)
        assert MARK.encode() not in talk.body
    assert talk.seen.of(ActionTaken) == []
    assert {(one.arm, one.action) for one in talk.seen.of(FindingSeen)} == {(HOLDOUT, "observe")}
    counts: Counts = talk.guards[0].counts
    found = talk.seen.of(FindingSeen)
    assert counts.of("findings", HOLDOUT) == counts.of("findings") == len(found)
    assert sum(one.verdict.finding.kind == "repeat" for one in found) == 8


async def test_what_tools_and_sessions_set_for_themselves() -> None:
    """Their modes do not hold there either."""
    more = {"holdout": 1.0, "per_tool": {"search": {"mode": "block"}}}
    talk = Talk(CHAT, "warn", loop=more)
    await talk.step(loop(1))
    talk.say("!/set(tool-loop-mode=block)")
    await talk.step(TALK)
    talk.say("Go on.")
    for number in range(2, 7):
        await talk.step(loop(number))
    assert talk.seen.of(ActionTaken) == []
    assert len(talk.seen.of(FindingSeen)) > 1


async def test_a_callback_does_not_act() -> None:
    """It is not asked: it could change what is measured."""
    asked: list[object] = []

    def ask(event: object) -> str:
        asked.append(event)
        return "block"

    talk = Talk(CHAT, "block", loop={"holdout": 1.0}, on_loop=ask)
    await talk.step(loop(1))
    assert (asked, talk.seen.of(ActionTaken)) == ([], [])


@pytest.mark.parametrize(("answer", "result"), [(other("zebra"), "changed"), (TALK, "ended")], ids=["other", "text"])
@every_dialect
async def test_what_would_have_come_of_it(kit: DialectKit, answer: object, result: str) -> None:
    """Is measured from the finding on that the model would have been told of."""
    talk = Talk(kit, "chance_then_block", loop={"holdout": 1.0})
    await talk.step(loop(1))
    await talk.step(answer)  # type: ignore[arg-type]
    mended = talk.seen.one(CourseMended)
    assert (mended.result, mended.arm) == (result, HOLDOUT)
    assert talk.guards[0].counts.of("mitigations", f"{HOLDOUT} {result}") == 1


async def test_as_many_as_would_have_been_told() -> None:
    """The first finding of a streak would have been steered, the others blocked."""
    talk = Talk(CHAT, "chance_then_block", loop={"holdout": 1.0})
    for number in range(4):
        await talk.step(loop(number))
    assert [(one.result, one.arm) for one in talk.seen.of(CourseMended)] == [("same", HOLDOUT)]
    observing = Talk(CHAT, "observe", loop={"holdout": 1.0})
    for number in range(4):
        await observing.step(loop(number))
    assert observing.results == []


async def test_what_only_results_show() -> None:
    """Would have been told with them."""
    same = "Error: there is no table 't' here"
    talk = Talk(CHAT, "chance_then_block", history=failing(LIMIT), loop={"holdout": 1.0}, result=lambda _: same)
    await talk.step(saying(next_call(LIMIT)))
    assert MARK not in str(talk.app.heard[0].body)
    talk.result = lambda _: RESULT
    await talk.step(TALK)
    assert talk.results[:1] == ["ended"]


@pytest.mark.slow
async def test_the_other_arm() -> None:
    """Is guarded, and says so."""
    names = (f"session {at}" for at in range(100))
    settings = LoopSettings(holdout=0.5)
    talks = [Talk(CHAT, "warn", loop={"holdout": 0.5}, headers=of_session(name)) for name in names]
    for talk in talks[:6]:
        await talk.step(loop(1))
        await talk.step(other("zebra"))
        finding = talk.seen.of(FindingSeen)[0]
        assert finding.arm in (HOLDOUT, GUARDED)
        assert [one.arm for one in talk.seen.of(ActionTaken)] == [GUARDED] * (finding.arm == GUARDED)
        assert [(one.arm, one.result) for one in talk.seen.of(CourseMended)] == [(finding.arm, "changed")]
    assert {talk.seen.of(FindingSeen)[0].arm for talk in talks[:6]} == {HOLDOUT, GUARDED}
    assert settings.holdout == 0.5


async def test_the_log_says_it() -> None:
    """In the line of a finding; nothing where there is no holdout."""
    for share, arms in ((1.0, ["holdout, would have been warn"]), (0.0, [])):
        talk = Talk(CHAT, "warn", loop={"holdout": share})
        with given_log() as log:
            await talk.step(loop(1))
        (line,) = [text for _, _, text in log if text.startswith("Tool call loop")]
        assert line.split(", arm=")[1:] == arms


async def test_another_callfuse_is_measured_itself() -> None:
    """What only observes because another one guards belongs to no arm."""
    talk = Talk(CHAT, "warn", loop={"holdout": 1.0}, headers=(*JSON_REQUEST, (b"x-callfuse-via", b"callfuse")))
    await talk.step(loop(1))
    assert talk.seen.one(FindingSeen).arm == ""
