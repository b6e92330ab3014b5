"""A client that compacts its history: the model's rounds go, a summary stands in their place, and the loop goes on.

Whole conversations on the wire, in each dialect, with ids of calls and without; then the verdicts of any schedule of
compactions, which are those of the history shown whole; then what no one can tell apart.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import read_conversation
from callfuse.guard.judge import Judge
from callfuse.guard.record import past_round
from callfuse.policy.settings import LoopSettings
from tests.conversations.talks import Lane, by_number, messages, without, words
from tests.detect.timelines import past
from tests.guard.driving import read
from tests.guard.written import OPENAI
from tests.support.asgi import JSON_REQUEST
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import Session, ask, every_dialect, reply
from tests.support.model import History, Round, User
from tests.support.plain import RESULT, same_call, saying

TASK = User("Find the zebra crossing.")
MOST = 9
"""Executions after which nobody waits for a verdict any more."""
BEGINNINGS = (
    "This session is being continued from a previous conversation that ran out of context. Summary: ",
    "Another language model started to solve this problem and produced a summary of its thinking process. ",
    "Here is a summary of the conversation to date:\n\n",
    "<state_snapshot>\n<overall_goal>Find it.</overall_goal> ",
)

GO_ON = "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed."

ASKED = User("What did we do so far?")

Turns = list[User | Round]
Compact = Callable[[int, Round], Turns]
"""What stands in place of so many rounds, of which this is the last."""


def in_known_words(number: int) -> User:
    """A summary of so many rounds, as a harness begins it."""
    return User(f"{BEGINNINGS[0]}{'I' * number} searches.")


def in_any_words(number: int) -> User:
    """A summary as nobody knows it."""
    return User(f"So far: {'I' * number} searches. Go on.")


def said(text: str) -> Round:
    """An answer of the model without calls."""
    return Round((), (), text)


WAYS: dict[str, Compact] = {
    "behind the task": lambda number, _: [TASK, in_known_words(number)],
    "newest kept": lambda number, last: [TASK, in_known_words(number), last],
    "nothing else": lambda number, _: [in_known_words(number)],
    "any words": lambda number, _: [TASK, in_any_words(number)],
    "any words, newest kept": lambda number, last: [TASK, in_any_words(number), last],
    "the model's own summary": lambda number, _: [ASKED, said(f"{'I' * number} searches."), User(GO_ON)],
    "newest only": lambda _, last: [TASK, last],
    "behind Codex's task": lambda number, _: [TASK, User(f"{BEGINNINGS[1]}{'I' * number} searches.")],
    "LangChain's": lambda number, last: [User(f"{BEGINNINGS[2]}{'I' * number} searches."), last],
    "Gemini CLI's": lambda number, last: [User(f"{BEGINNINGS[3]}{'I' * number}"), said("Got it. Thanks for it!"), last],
}


@dataclass(frozen=True)
class Client:
    """A client that runs what the model calls. `compacts`: after which executions it does; `ids`: whether it sends the
    ids of calls back; `named`: whether it names its session; `result`: what the n-th execution brings."""

    kit: DialectKit
    way: str
    compacts: Callable[[int], bool]
    ids: bool = True
    named: bool = False
    result: Callable[[int], str] = lambda _: RESULT

    def executions(self) -> int:
        """How often the same call runs until it is stopped, or `MOST`."""
        return asyncio.run(self._run(Session()))

    async def _run(self, session: Session) -> int:
        headers = JSON_REQUEST + (((b"x-callfuse-session-id", b"one"),) if self.named else ())
        turns: Turns = [TASK]
        try:
            for done in range(MOST):
                call = same_call(f"call_{done}" if self.ids else "")
                answer = reply(self.kit, saying(call, tag=f"t{done}"), stream=True)
                asked = ask(self.kit, History(tuple(turns)), stream=True, headers=headers)
                met = await session.exchange(asked, answer)
                if not self.kit.read(met.body, stream=True)[0].calls:
                    return done
                last = Round((call,), (self.result(done),))
                turns = WAYS[self.way](done + 1, last) if self.compacts(done + 1) else [*turns, last]
        finally:
            await session.close()
        return MOST


SCHEDULES: dict[str, Callable[[int], bool]] = {
    "after one": lambda done: done == 1,
    "after two": lambda done: done == 2,
    "every second": lambda done: done % 2 == 0,
    "every": lambda done: True,
}
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
with_ids_and_without = pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])


@every_dialect
@with_ids_and_without
@each_schedule
@pytest.mark.parametrize("way", ["behind the task", "newest kept"])
def test_the_third_execution_is_stopped(kit: DialectKit, ids: bool, schedule: str, way: str) -> None:
    """As without a compaction, whether or not the client names its session."""
    assert Client(kit, way, SCHEDULES[schedule], ids=ids).executions() == 2


@every_dialect
def test_an_answer_whose_id_comes_back_needs_no_known_words(kit: DialectKit) -> None:
    """The newest round is known by its id, or in a named session as the last one, and stands nearer to the beginning
    than it did."""
    assert Client(kit, "any words, newest kept", SCHEDULES["every"]).executions() == 2
    assert Client(kit, "any words, newest kept", SCHEDULES["every"], ids=False, named=True).executions() == 2


@every_dialect
@with_ids_and_without
def test_a_summary_in_place_of_all(kit: DialectKit, ids: bool) -> None:
    """The lane of a conversation goes by how it opens. In a named session those that a summary opens are one lane: what
    was before the first compaction is lost, all since counts. Without a name nothing joins them."""
    counts = [
        Client(kit, "nothing else", SCHEDULES["every second"], ids=ids, named=named).executions()
        for named in (True, False)
    ]
    assert counts == [4, MOST]


@every_dialect
@with_ids_and_without
def test_the_same_words_behind_each_summary(kit: DialectKit, ids: bool) -> None:
    """The model has summed up, and a harness tells it to go on. In a named session a shorter history behind these words
    was compacted once more; without a name it may be another conversation that was."""
    counts = [
        Client(kit, "the model's own summary", SCHEDULES["every second"], ids=ids, named=named).executions()
        for named in (True, False)
    ]
    assert counts == [4, 8]


@every_dialect
@with_ids_and_without
def test_a_summary_in_words_that_nobody_knows(kit: DialectKit, ids: bool) -> None:
    """A named session has got shorter. Without a name, three histories were left with the same call under way."""
    counts = [
        Client(kit, "any words", SCHEDULES["every second"], ids=ids, named=named).executions()
        for named in (True, False)
    ]
    assert counts == ([4, 8] if kit.name == "bedrock-converse" else [2, 6])  # there the model says a word in between


@every_dialect
@pytest.mark.parametrize(
    ("way", "ids", "named"),
    [
        ("any words", True, True),
        ("any words, newest kept", False, False),
        ("nothing else", True, False),
        ("the model's own summary", True, True),
    ],
)
def test_what_says_too_little(kit: DialectKit, way: str, ids: bool, named: bool) -> None:
    """Each round is summed up: nothing shows that the call was run, or that one request goes on from another. The same
    bytes come from a client that extracts data from one text after another, from one that tries a request again, and
    from agents side by side whose tasks begin alike."""
    assert Client(kit, way, SCHEDULES["every"], ids=ids, named=named).executions() == MOST


@pytest.mark.parametrize(
    ("schedule", "executions"), [("after one", 2), ("after two", 2), ("every second", 2), ("every", MOST)]
)
@pytest.mark.parametrize("named", [True, False])
def test_a_history_that_the_vendor_has_compacted(schedule: str, executions: int, named: bool) -> None:
    """Codex puts the item behind the task that it gets for its rounds: nobody can read it. In place of every single
    round it is not told from a try of the same request."""
    (kit,) = [one for one in KITS if one.name == "openai-responses"]
    headers = JSON_REQUEST + (((b"x-callfuse-session-id", b"one"),) if named else ())

    async def run(session: Session) -> int:
        rounds: Turns = []
        compacted = 0
        for done in range(MOST):
            body = json.loads(ask(kit, History((TASK,)), stream=True).body)
            shown = json.loads(ask(kit, History((TASK, *rounds)), stream=True).body)["input"][1:]
            items = [{"type": "compaction", "encrypted_content": f"gAAA{compacted}"}] if compacted else []
            body["input"] += [*items, *shown]
            call = same_call(f"call_{done}")
            asked = replace(ask(kit, History((TASK,)), stream=True, headers=headers), body=json.dumps(body).encode())
            met = await session.exchange(asked, reply(kit, saying(call, tag=f"t{done}"), stream=True))
            if not kit.read(met.body, stream=True)[0].calls:
                return done
            rounds.append(Round((call,), (RESULT,)))
            if SCHEDULES[schedule](done + 1):
                rounds, compacted = [], done + 1
        return MOST

    session = Session()
    assert asyncio.run(run(session)) == executions


AGENTS = {
    "Claude Code": ("nothing else", True, 4),
    "Codex": ("behind Codex's task", True, 2),
    "LangChain": ("LangChain's", False, 3),
    "Gemini CLI, qwen-code": ("Gemini CLI's", False, 3),
    "OpenCode": ("the model's own summary", True, 4),
    "OpenCode behind a gateway that drops its headers": ("the model's own summary", False, 8),
}
"""How each agent compacts its history, whether it names its session, and how often the call runs then."""


@every_dialect
@with_ids_and_without
@pytest.mark.parametrize("agent", AGENTS)
def test_what_real_agents_write(kit: DialectKit, ids: bool, agent: str) -> None:
    """Where nothing of the beginning stays, what was before the first compaction is lost, but for what is kept."""
    way, named, executions = AGENTS[agent]
    assert Client(kit, way, SCHEDULES["every second"], ids=ids, named=named).executions() == executions


def leave(lane: Lane, task: str, *rounds: str) -> list[str]:
    """A conversation that is left with its newest calls under way; all others bring `x`. What its first request sees of
    those before it."""
    opening = ("user: Context.", f"user: {task}")
    seen = words(lane.look(*opening).timeline)
    shown = [" ".join(f"{name}=x" for name in round_.split()) for round_ in rounds]
    for at, round_ in enumerate(rounds):
        lane.answer(*opening, *shown[:at], brings=[round_])
    return seen


@pytest.mark.parametrize("ids", [by_number, without])
def test_histories_that_are_left_in_the_middle_of_one_call(ids: Callable[[int, str], str]) -> None:
    """Two may be runs that were broken off, or agents whose tasks begin alike; from the third on all count."""
    lane = Lane(ids)
    seen = [leave(lane, f"task {at}", "a", "a") for at in range(5)]
    assert seen == [[], [], [], ["a=x", "a"] * 3, ["a=x", "a"] * 4]


@pytest.mark.parametrize(
    "rounds",
    [["a"], ["a", "b"], ["a", "b", "a"], ["b", "a", "a"], ["a", "a b"]],
    ids=["nothing was shown", "two calls", "by turns", "something else first", "something else beside it"],
)
def test_conversations_that_open_alike(rounds: list[str]) -> None:
    """Agents that work side by side, an extraction from one text after another, runs that are broken off: none of them
    makes nothing but one call, sees its result and makes it again."""
    lane = Lane()
    assert [leave(lane, f"task {at}", *rounds) for at in range(8)] == [[]] * 8


def test_a_client_that_shows_no_results_runs_nothing() -> None:
    """It extracts data, several times from each text, and shows what it has got. Or once, from texts of any length."""
    lane = Lane()
    for at in range(8):
        opening = ("user: Context.", f"user: text {at}")
        assert words(lane.look(*opening).timeline) == []
        for shown in range(2):
            lane.answer(*opening, *["a"] * shown, brings=["a"])
    for at in range(8):
        longer = ("user: Context.", *["model: Yes?", f"user: text {at}"] * (9 - at))
        assert words(lane.look(*longer).timeline) == []
        lane.answer(*longer, brings=["a"])


def test_ended_conversations_do_not_count_with_those_that_were_left() -> None:
    """Whatever comes behind them."""
    lane = Lane()
    for at in range(3):
        leave(lane, f"ended {at}", "a", "a")
        lane.answer("user: Context.", f"user: ended {at}", "a=x", "a=x", brings=[])
    seen = [leave(lane, f"left {at}", "a", "a") for at in range(4)]
    assert seen == [[], [], [], ["a=x", "a"] * 3]


def test_a_call_that_is_something_else_ends_it() -> None:
    """Whatever was left before is forgotten."""
    lane = Lane()
    for at in range(3):
        leave(lane, f"task {at}", "a", "a")
    leave(lane, "task 3", "a", "b", "a")
    assert leave(lane, "task 4", "a", "a") == []


def test_a_conversation_that_comes_to_its_end_was_not_left() -> None:
    """The model has said something behind the results."""
    lane = Lane()
    for at in range(6):
        assert leave(lane, f"task {at}", "a", "a") == []
        lane.answer("user: Context.", f"user: task {at}", "a=x", "a=x", brings=[])


def test_agents_side_by_side_do_not_join() -> None:
    """They ask by turns: each request with rounds is known by these."""
    lane, agents = Lane(), [f"user: task {at}" for at in range(8)]
    for at in range(3):
        for agent in agents:
            seen = lane.answer("user: Context.", agent, *["a=x"] * at, brings=["a"])
            assert words(seen.timeline) == ["a=x"] * at


def test_a_person_who_speaks_in_between_begins_anew() -> None:
    """The history gets longer: that is no summary."""
    lane = Lane()
    said_before: list[str] = []
    for at in range(5):
        said_before.append(f"user: {'abcde'[at] * 4}")
        assert words(lane.look(*said_before).timeline) == []
        lane.answer(*said_before, brings=["a"])
        said_before.append("a=x")
        lane.answer(*said_before, brings=["a"])
        said_before.append("a=x")


@every_dialect
def test_a_client_without_ids_that_shows_its_newest_round(kit: DialectKit) -> None:
    """Results that differ, if only in a time, tell its requests from tries of one request. Equal ones do not: three of
    them count as tries."""
    counts = [
        Client(kit, "newest only", SCHEDULES["every"], ids=False, result=result).executions()
        for result in (lambda done: f"{RESULT} at 10:4{done}:07", lambda _: RESULT)
    ]
    assert counts == [2, 5]


def test_another_conversation_that_opens_alike() -> None:
    """Without a session's name, a shorter history behind another message may be a new conversation. Whatever it calls,
    nothing of the one before counts."""
    lane = Lane()
    for at in range(2):
        lane.answer("user: Context.", "user: Task one.", *["a=x"] * at, brings=["a"])
    lane.answer("user: Context.", "user: Task two.", brings=["a"])
    assert words(lane.look("user: Context.", "user: Task two.", "a=x").timeline) == ["a=x"]


SUMMARY = f"user: {BEGINNINGS[1]}"


@pytest.mark.parametrize("ids", [by_number, without])
@pytest.mark.parametrize("tries", range(1, 6))
def test_tries_behind_a_summary_leave_no_trace(ids: Callable[[int, str], str], tries: int) -> None:
    """The same request once more is no further compaction, however often it comes."""
    lane = Lane(ids)
    for at in range(2):
        lane.answer("user: go", *["a=x"] * at, brings=["a"])
    for _ in range(tries):
        assert len(words(lane.look("user: go", SUMMARY).timeline)) == 2
        lane.answer("user: go", SUMMARY, brings=["a"])
    assert words(lane.look("user: go", SUMMARY, "a=x").timeline) == ["a=x", "a", "a=x"]


@pytest.mark.parametrize("tries", range(1, 4))
def test_tries_of_a_client_without_ids_bring_the_same_result(tries: int) -> None:
    """A result that has the same text is that of the same execution."""
    lane = Lane(without)
    lane.answer("user: go", brings=["a"])
    for _ in range(tries):
        lane.answer("user: go", "a=x", brings=["a"])
    assert words(lane.look("user: go", "a=x").timeline) == ["a=x"]


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_words_of_each_harness(beginning: str) -> None:
    """They tell a compaction from a message that a person has typed."""
    lane = Lane()
    for at in range(2):
        lane.answer("user: go", *["a=x"] * at, brings=["a"])
    assert len(words(lane.look("user: go", f"user: {beginning}").timeline)) == 2
    assert words(lane.look("user: go", f"user: You wrote: {beginning}").timeline) == []


KEPT = st.sampled_from(["", "", "nothing", "newest"])
WORDS = st.sampled_from(["a=x", "a=x", "a=x", "b=y", "a1=x", "a=x b=y"])
"""Each call always brings the same: no summary shows a result that no request has shown."""


@given(
    rounds=st.lists(WORDS, min_size=1, max_size=12),
    kept=st.lists(KEPT, min_size=1, max_size=5),
    ids=st.booleans(),
)
@example(rounds=["a=x"] * 9, kept=["", "nothing"], ids=False)
@example(rounds=["a=x"] * 9, kept=["newest", ""], ids=False)
def test_no_verdict_depends_on_compactions(rounds: list[str], kept: list[str], ids: bool) -> None:
    """Whatever of the rounds stays behind a summary, and when: the same is found, with the same counts."""
    assert found(rounds, kept, ids=ids) == found(rounds, [""], ids=ids)


def found(rounds: Sequence[str], kept: Sequence[str], *, ids: bool) -> list[list[tuple[str, int, bool]]]:
    """What is found in each answer where the client compacts its history before request `n` if `kept[n]` says what it
    keeps of its rounds."""

    def id_of(at: int, number: int, _name: str = "") -> str:
        return f"id{at}.{number}" if ids else ""

    state, settings, verdicts = LaneState(), LoopSettings.model_validate({"mode": "observe"}), []
    parts = [("user: go", 0)]
    for at, word in enumerate(rounds):
        if at and (keeps := kept[at % len(kept)]):
            parts = [parts[0], (f"{SUMMARY} {'I' * at}", at), *(parts[-1:] if keeps == "newest" else [])]
        turns = [turn for said, first in parts for turn in messages([said], partial(id_of, first))]
        body = json.dumps({"model": "m", "messages": turns, "tools": [{"type": "function"}]}).encode()
        conversation = read_conversation(read(OPENAI, body), state, 10.0 * at, settings)
        calls = [past(one, id_of(at, n)).call for n, one in enumerate(word.split())]
        found_here = Judge(conversation.timeline, settings).verdicts(calls)
        verdicts.append([(str(one.finding.kind), one.finding.count, one.finding.hard) for one in found_here])
        state = conversation.evidence.after([past_round(calls, found_here)], [], 10.0 * at + 5, max_rounds=128)
        parts.append((word, at))
    return verdicts
