"""What looks like a loop and is none, and the loop that looks like it, on the wire.

An agent makes one call again and again, and the model asks for it once more. An innocent call reaches the client, and
its results carry no warning; of a loop the call is withheld, and the model asked again.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Meeting, ask, every_dialect, meet, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

PODS: Final = "NAME    READY   STATUS              RESTARTS   AGE\nweb-0   {}   0          {}s"
INNOCENT: Final[dict[str, Sequence[str]]] = {
    "pods come up": [PODS.format("0/1     ContainerCreating", at) for at in (5, 9, 14)],
    "replicas come up": ["deployment web: 0/3 replicas"] * 3,
    "a build compiles": ['{"status": "compiling"}'] * 3,
    "a job has no runner yet": ["Status: waiting for a runner"] * 3,
    "somebody has to approve": ["Status: waiting for approval"] * 3,
    "a workflow runs": ["\n* main CI - 12\nTriggered via push about 2 minutes ago\n\nJOBS\n* build (ID 5)"] * 3,
    "a lock is held": ["E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (apt-get)"] * 3,
    "a database is locked": ["Error: database is locked"] * 3,
    "somebody else writes": ["Error: 409 Conflict: the object has been modified"] * 3,
    "somebody else pushes": ["Error: 422 Update is not a fast forward"] * 3,
    "a benchmark is run again": [f"mean 0.00{at} s" for at in (8029, 7819, 7904)],
    "a debugger is stepped": [f"0x00005555555{at} in go ()" for at in ("5f50", "5f59", "5f5c")],
}
LOOPS: Final[dict[str, Sequence[str]]] = {
    "pods crash": [PODS.format("0/1     CrashLoopBackOff", at) for at in (5, 5)],
    "pods run": [PODS.format("1/1     Running", at) for at in (5, 5)],
    "a build has failed": ['{"status": "failed", "exit_code": 1}'] * 2,
    "a workflow has ended": ["\n✓ main CI - 12\nTriggered via push about 2 minutes ago\n\nJOBS\n✓ build (ID 5)"] * 2,
    "it exists already": ["Error: 409 Conflict: a repository of this name already exists"] * 2,
    "it is invalid": ["Error: 422 Validation failed"] * 2,
    "replicas are up": ["deployment web: 3/3 replicas"] * 2,
    "a build stands still": ["Build #12: 40% done"] * 2,
    "a job has lost its runner": ["Status: failed, the runner was lost"] * 2,
    "somebody has approved": ["Status: approved"] * 2,
    "a lock may not be taken": ["E: Could not open lock file /var/lib/dpkg/lock - open (13: Permission denied)"] * 2,
    "a database cannot be written": ["Error: attempt to write a readonly database"] * 2,
    "somebody may not push": ["Error: 403 Forbidden"] * 2,
    "a benchmark brings the same": ["mean 0.008029 s"] * 2,
    "a debugger stands still": ["0x0000555555555f50 in go ()"] * 2,
    "the same row is written": ["Row 3 written."] * 2,
    "tests are run again": [f"1 failed, 3 passed in 0.0{at}s" for at in (2, 3)],
    "a search brings nothing": [f"No results in {at} ms" for at in (12, 13)],
}

OTHER: Final = Call("call_other", "read", ('{"path": "a"}',))
SCREEN: Final = (
    "computer",
    "browser_click",
    "mcp__playwright__browser_press_key",
    "scroll",
    "type_text",
    "undo",
    "volume_up",
    "zoom_in",
)


def again(results: Sequence[str], name: str = "search") -> tuple[Call, History]:
    """The call that comes once more, and the conversation in which it has brought these results."""
    rounds = [
        Round((Call(f"call_{at}", name, ('{"command": ', '"look"}')),), (text,)) for at, text in enumerate(results)
    ]
    return Call("call_again", name, ('{"command": ', '"look"}')), History((User("See to the zebra."), *rounds))


def many(kit: DialectKit, name: str, results: Sequence[str], *calls: Call) -> Meeting:
    """The model asks once more for a call of this tool, which has brought these results."""
    call, history = again(results, name)
    return answered(kit, history, call, *calls, detectors={"unknown_tool": False})


def withheld(met: Meeting) -> bool:
    """Whether the model was asked again, or the call blocked."""
    return len(met.app.heard) > 1 or MARK.encode() in met.body


def answered(kit: DialectKit, history: History, *calls: Call, **settings: Any) -> Meeting:
    """The model makes these calls, one an answer."""
    replies = [reply(kit, saying(call, tag=f"r{at}"), stream=True) for at, call in enumerate(calls)]
    return meet(ask(kit, history, stream=True), replies, "chance_then_block", **settings)


@every_dialect
@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_call_goes(kit: DialectKit, name: str) -> None:
    """It reaches the client, and nothing is said of it."""
    call, history = again(INNOCENT[name])
    met = answered(kit, history, call)
    assert len(met.app.heard) == 1
    assert len(kit.sdk(met.body, stream=True)[0].calls) == 1
    assert not [text for _, text in kit.results(met.app.heard[0].body) if MARK in text]


@every_dialect
@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_that_looks_like_it_is_steered(kit: DialectKit, name: str) -> None:
    """The third call is withheld, and the model asked again."""
    call, history = again(LOOPS[name])
    met = answered(kit, history, call, OTHER)
    assert len(met.app.heard) == 2
    assert [one.name for one in kit.sdk(met.body, stream=True)[0].calls] == ["read"]


@every_dialect
@pytest.mark.parametrize("tool", SCREEN)
def test_what_acts_on_a_screen_is_warned_of_from_five_on_and_acted_on_from_ten_on(kit: DialectKit, tool: str) -> None:
    """A result such as "Clicked" says nothing of what has changed; with ten it is a loop."""
    assert not withheld(many(kit, tool, ["Clicked"] * 3))
    warned = many(kit, tool, ["Clicked"] * 8)
    assert not withheld(warned)
    said = [MARK in text for _, text in kit.results(warned.app.heard[0].body)]
    assert said == [False] * 4 + [True] * 4
    assert withheld(many(kit, tool, ["Clicked"] * 9, OTHER))


@every_dialect
def test_a_person_is_asked_as_often_as_it_takes(kit: DialectKit) -> None:
    """Nothing is found; a tool whose name only looks like it is one like any other."""
    assert not withheld(many(kit, "ask_user", ["yes"] * 12))
    assert withheld(many(kit, "ask_oracle", ["yes"] * 2, OTHER))


@every_dialect
def test_results_that_get_on_are_not_even_warned_of(kit: DialectKit) -> None:
    """A percentage that rises; one that jumps about is warned of, and goes."""
    rising = many(kit, "search", [f"Build #12: {at}% done" for at in range(3, 36, 3)])
    assert not withheld(rising)
    assert not [text for _, text in kit.results(rising.app.heard[0].body) if MARK in text]
    jumping = many(
        kit, "search", [f"price {price}" for price in (17.1, 19.4, 16.2, 18.8, 15.3, 20.1, 14.9, 19.2, 16.6, 18.3)]
    )
    assert not withheld(jumping)
    assert [text for _, text in kit.results(jumping.app.heard[0].body) if MARK in text]
