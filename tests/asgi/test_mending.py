"""What the model does after it was told of a loop is told as an event, once for each action."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.conversations.ledger import Closable
from callfuse.observe.events import ActionTaken, CourseMended, FindingSeen
from tests.dialects.openai_responses.test_chains import answer, call, going_on
from tests.dialects.openai_responses.wire import message, request, result
from tests.laws.test_in_hindsight import LIMIT, failing, next_call
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import PATIENT, settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, User
from tests.support.observing import Observed
from tests.support.plain import RESULT, again, known_call, same_call, saying, spin
from tests.support.scripted import Reply, ScriptedApp

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
TALK = saying("There is none.", tag="talk")


def other(tag: str) -> Answer:
    """The model does something that is new each time."""
    return saying("Another way.", Call(f"call_{tag}", "search", (f'{{"query": "{tag}"}}',)), tag=tag)


@dataclass
class Talk:
    """A client that goes on as the model says, over guards that take turns. `seen`: what they tell."""

    kit: DialectKit = CHAT
    ladder: str = "warn"
    stream: bool = True
    workers: int = 1
    store: str | None = None
    history: History = field(default_factory=spin)
    headers: Headers = JSON_REQUEST
    loop: dict[str, Any] = field(default_factory=dict)
    result: Callable[[Call], str] = lambda _: RESULT
    on_loop: Callable[[Any], Any] | None = None
    asked: int = 0

    def __post_init__(self) -> None:
        config = settings(self.ladder, **self.loop) | PATIENT
        self.seen = Observed()
        self.app = ScriptedApp(())
        self.guards = [
            CallFuseMiddleware(self._vendor, config, store=self.store, on_loop=self.on_loop)
            for _ in range(self.workers)
        ]
        for guard in self.guards:
            guard.bus.add(self.seen)

    async def _vendor(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def ask(self, *answers: Answer | Reply) -> None:
        """One exchange, in which the model gives these answers; its history stays as it is."""
        replies = [one if isinstance(one, Reply) else reply(self.kit, one, stream=self.stream) for one in answers]
        await self.send(ask(self.kit, self.history, stream=self.stream, headers=self.headers), *replies)

    async def send(self, asked: Request, *replies: Reply) -> None:
        """One exchange with this request, to which the vendor answers so."""
        guard = self.guards[self.asked % self.workers]
        self.asked += 1
        self.app = ScriptedApp(replies)
        self.body = (await drive(guard, asked)).body

    async def step(self, *answers: Answer | Reply) -> None:
        """One exchange, after which the client goes on: it runs the calls that it gets, or keeps the text."""
        await self.ask(*answers)
        (view,) = self.kit.sdk(self.body, stream=self.stream)
        made = {call.id: call for one in answers if isinstance(one, Answer) for call in one.calls()}
        calls = [made[one.id] if one.id in made else Call(one.id, one.name, (one.arguments,)) for one in view.calls]
        self.history = self.history.and_then(Round(tuple(calls), tuple(map(self.result, calls)), view.text))

    async def close(self) -> None:
        """End the guards."""
        for guard in self.guards:
            if isinstance(guard.ledger, Closable):
                await guard.ledger.aclose()

    def say(self, text: str) -> None:
        """A person says something."""
        self.history = self.history.and_then(User(text))

    @property
    def results(self) -> list[str]:
        """What came of the actions."""
        return [one.result for one in self.seen.of(CourseMended)]


def loop(number: int) -> Answer:
    """The model makes the same call once more."""
    return again(tag=f"again{number}")


@every_dialect
@streamed_and_whole
async def test_it_changes_its_course(kit: DialectKit, stream: bool) -> None:
    """After a warning the model makes another call: that is told once, under the id of the finding."""
    talk = Talk(kit, stream=stream)
    await talk.step(loop(1))
    assert talk.results == []
    await talk.step(other("zebra"))
    await talk.step(other("lion"))
    await talk.step(TALK)
    mended = talk.seen.one(CourseMended)
    assert (mended.result, mended.arm) == ("changed", "")
    assert mended.finding_id == talk.seen.one(FindingSeen).finding_id == talk.seen.one(ActionTaken).finding_id
    assert mended.where == talk.seen.one(FindingSeen).where
    assert talk.guards[0].counts.of("mitigations", "changed") == 1


@every_dialect
@streamed_and_whole
async def test_it_answers(kit: DialectKit, stream: bool) -> None:
    """A text after a warning is an end."""
    talk = Talk(kit, stream=stream)
    await talk.step(loop(1))
    await talk.step(TALK)
    assert talk.results == ["ended"]


@every_dialect
async def test_it_goes_on(kit: DialectKit) -> None:
    """Two rounds in the same way are `same`, of each warning; the second of them may still mend."""
    talk = Talk(kit)
    for number in (1, 2):
        await talk.step(loop(number))
        assert talk.results == []
    await talk.step(loop(3))
    assert talk.results == ["same"]
    await talk.step(other("zebra"))
    assert talk.results == ["same", "changed", "changed"]
    assert [one.finding_id for one in talk.seen.of(CourseMended)] == [
        one.finding_id for one in talk.seen.of(ActionTaken)
    ]


@every_dialect
async def test_a_person_speaks(kit: DialectKit) -> None:
    """Before the model has answered the warning."""
    talk = Talk(kit)
    await talk.step(loop(1))
    talk.say("Stop that.")
    await talk.step(TALK)
    assert talk.results == ["user"]


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize(
    ("second", "result"),
    [(TALK, "ended"), (other("zebra"), "changed"), (loop(2), "same")],
    ids=lambda one: str(one)[:7],
)
async def test_guidance_is_decided_at_once(kit: DialectKit, stream: bool, second: Answer, result: str) -> None:
    """By the second answer, in the same exchange."""
    talk = Talk(kit, "chance_then_block", stream)
    await talk.step(loop(1), second)
    assert talk.results == [result]
    assert talk.seen.names().index("mended") > talk.seen.names().index("action")
    await talk.step(TALK)
    assert talk.results == [result]


async def test_each_rung_of_one_exchange() -> None:
    """Is decided by the answer to it; a block is none that could be mended."""
    talk = Talk(CHAT, "every rung")
    await talk.step(loop(1), loop(2), loop(3), TALK)
    assert [one.rung for one in talk.seen.of(ActionTaken)] == ["steer", "force_text", "escalate"]
    assert talk.results == ["same", "same", "ended"]
    blocked = Talk(CHAT, "block")
    await blocked.step(loop(1))
    blocked.say("Go on.")
    await blocked.step(TALK)
    assert (len(blocked.seen.of(ActionTaken)), blocked.results) == (1, [])


async def test_guidance_beside_a_survivor() -> None:
    """It goes with the survivor's result, so the next rounds decide."""
    talk = Talk(CHAT, "chance_then_block", history=spin(beside=True))
    await talk.step(saying(same_call("call_a"), known_call("call_b")))
    assert [one.rung for one in talk.seen.of(ActionTaken)] == ["steer"]
    assert talk.results == []
    await talk.step(other("zebra"))
    assert talk.results == ["changed"]


async def test_a_rung_that_failed_told_nothing() -> None:
    """A model that could not be asked again has read no guidance."""
    talk = Talk(CHAT, "chance_then_block")
    await talk.step(loop(1), Reply((b"{}",), 500))
    assert [one.rung for one in talk.seen.of(ActionTaken)] == ["steer", "block"]
    talk.say("Go on.")
    await talk.step(TALK)
    assert talk.results == []


@every_dialect
async def test_results_decide_where_only_they_can(kit: DialectKit) -> None:
    """The same error again whatever the call: a call that fails otherwise, or not, is another course."""
    same: Callable[[Call], str] = lambda call: f"Error: there is no table 't_{call.id[6:]}' here"  # noqa: E731
    talk = Talk(kit, history=failing(LIMIT), result=same)
    await talk.step(saying(next_call(LIMIT)))
    assert talk.results == []
    await talk.step(saying(next_call(LIMIT + 1)))
    await talk.step(saying(next_call(LIMIT + 2)))
    assert talk.results == ["same"]
    talk.result = lambda _: "There is one."
    await talk.step(saying(next_call(LIMIT + 3)))
    await talk.step(saying(next_call(LIMIT + 4)))
    await talk.step(TALK)
    assert talk.results[-1] == "changed"
    assert len(talk.results) == len(talk.seen.of(ActionTaken))


async def test_the_same_request_again_counts_once() -> None:
    """A client that has not got its answer sends its request again, and is told anew."""
    talk = Talk(CHAT)
    await talk.ask(loop(1))
    await talk.step(loop(1))
    await talk.step(other("zebra"))
    assert talk.results == ["changed"]


@pytest.mark.parametrize(
    ("turn", "came"),
    [(result(call(3)), "ended"), ("Stop that.", "user")],
    ids=["answers", "user"],
)
async def test_in_a_chain(turn: Any, came: str) -> None:
    """Where the vendor has the conversation, and the request only what is new."""
    talk = Talk(CHAT)
    news: list[Any] = ["Go."]
    place: dict[str, Any] = {}
    for at in (1, 2, 3):
        await talk.send(request(*news, store=True, **place), answer(call(at), tag=str(at)))
        news, place = [result(call(at))], {"previous_response_id": f"resp_{at}"}
    assert (len(talk.seen.of(ActionTaken)), talk.results) == (1, [])
    await talk.send(going_on(turn, after="resp_3"), answer(message(), tag="4"))
    assert talk.results == [came]


@every_dialect
async def test_a_history_that_was_compacted(kit: DialectKit) -> None:
    """Rounds that the client drops, with a shorter summary in their place: nobody has spoken."""
    talk = Talk(kit, history=spin(beside=True), headers=(*JSON_REQUEST, (b"x-callfuse-session-id", b"one")))
    await talk.step(loop(1))
    task, *_, last = talk.history.turns
    talk.history = History((task, User("So far: the zebra crossing was not found."), last))
    await talk.step(other("zebra"))
    assert talk.results == ["changed"]


async def test_a_new_conversation_that_begins_alike_is_another() -> None:
    """What became of the one before it, nobody knows."""
    talk = Talk(CHAT)
    await talk.step(loop(1))
    talk.history = History((User("Find the zebra crossing."),))
    await talk.step(TALK)
    assert talk.results == []


@pytest.mark.parametrize("broken", [Reply((b"{}",), 500), Reply((b'data: {"choices": [',), raises=OSError("gone"))])
async def test_a_broken_answer_decides_nothing(broken: Reply) -> None:
    """The next one does."""
    talk = Talk(CHAT)
    await talk.step(loop(1))
    await talk.ask(broken)
    assert talk.results == []
    await talk.step(TALK)
    assert talk.results == ["ended"]
