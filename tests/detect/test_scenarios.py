"""What agents do, in whole runs under the shipped settings: what is let go, what is caught, and where.

A run is its rounds, oldest first, each judged as it came. Harmless ones are the false alarms that the field reports;
of the loops, the round is named in which they are first found.
"""

import pytest

from callfuse.detect import Engine
from callfuse.model import Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import rounds

SETTINGS = LoopSettings()

LETTERS = "bcdefghijklmnop"
EDIT_TEST = [word for at in range(8) for word in (f"edit{at}=ok", f"test=failed_{LETTERS[at]}")]
HARMLESS = {
    "nothing at all": [],
    "a poller by its name": ["wait_for_job=waiting"] * 14,
    "a poller by its argument": ["process@=waiting"] * 14,
    "a poller by what it brings": ["check=~the_build"] * 14,
    "a poller that brings something new each time": [f"tail=line_{letter}" for letter in LETTERS[:5]],
    "a batch of distinct calls, one after another": [f"write{at}=success" for at in range(40)],
    "a batch of distinct calls at once": [" ".join(f"write{at}=success" for at in range(12))] * 2,
    "equal reads in one turn": ["read=x read=x", "edit=ok"],
    "three dice at once": ["roll=a roll=b roll=c"],
    "equal sub-agents": ["plan=ok", "agent=a agent=b agent=c agent=d agent=e"],
    "equal reads in two turns": ["read=x read=x", "read=x read=x"],
    "a poller at once": ["wait_for_job=waiting wait_for_job=waiting wait_for_job=waiting"],
    "parallel reads, some again": ["read1=x read2=y", "read1=x read3=z", "read1=x read4=w", "read1=x read5=v"],
    "paging": [f"list{at}=page_{letter}" for at, letter in enumerate(LETTERS)],
    "paging through empty pages": [f"list{at}=nothing" for at in range(20)],
    "edit and test": EDIT_TEST,
    "edit and a test that passes": [word for at in range(10) for word in (f"edit{at}=ok", "test=3_passed")],
    "edit and test with the same failure": [word for at in range(10) for word in (f"edit{at}=ok", "test=failed")],
    "read after write": [word for at in range(8) for word in (f"write{at}=ok", f"read=now_{LETTERS[at]}")],
    "read after write with the same text": [word for at in range(8) for word in (f"write{at}=ok", "read=same")],
    "going there, looking, going there": [word for at in range(8) for word in ("cd=ok", f"ls{at}=files")],
    "a retry after mending its cause": [
        "run=!no_such_module",
        "install=ok",
        "run=!no_such_file",
        "touch=ok",
        "run=fine",
    ],
    "twice the same": ["read=x", "read=x", "edit=ok", "read=x", "read=x"],
    "Tab again and again": ["press_key=pressed"] * 4,
    "scrolling and looking by turns": [
        word for at in range(3) for word in ("scroll=scrolled", f"screenshot=view_{at}")
    ],
    "scrolling and looking by turns, unseen": ["scroll=scrolled", "screenshot=view"] * 3,
    "asking a person": ["ask_user=yes"] * 14,
    "ping-pong with progress": [word for letter in LETTERS[:6] for word in (f"ask=said_{letter}", "look=nothing")],
    "a server at its limit": ["search=^slow_down"] * 14,
    "a server that fails": ["search=^try_later", "search=^overloaded"] * 7,
    "different errors of one tool": [f"run{at}=!it_is_{letter}{letter}{letter}" for at, letter in enumerate(LETTERS)],
    "guesses at a name": [f"open{at}=!no_file_'{letter}'" for at, letter in enumerate(LETTERS[:7])],
    "three errors and a success": ["run1=!bad", "run2=!bad", "run3=!bad", "run4=fine"],
    "known calls now and then": ["read=x", "ls=y", "grep1=a", "read=x", "ls=y", "grep2=b", "read=x", "ls=y", "grep3=c"],
}
LOOPS: dict[str, tuple[list[str], int, set[str]]] = {
    "one tool fails, others work": (
        [word for at in range(5) for word in (f"edit{at}=!no_such_method", f"read{at}=x{at}")],
        9,
        {"failing_tool"},
    ),
    "the same call": (["read=x"] * 3, 3, {"repeat"}),
    "the same call with others before it": (["a=x", "b=y", "read=x", "read=x", "read=x"], 5, {"repeat"}),
    "equal calls in one turn": (["read=x", "edit=ok", "read=x ls=y read=x read=x"], 3, {"repeat"}),
    "equal calls in one turn, more than anybody wants": (["roll=a " * 6], 1, {"repeat"}),
    "more calls in one turn than anybody wants": ([" ".join(f"read{at}=x" for at in range(129))], 1, {"flood"}),
    "the same call in every parallel round": (["read=x ls=y"] * 4, 3, {"repeat"}),
    "the same call, other times and ids in its result": (
        ["run=took_12_s", "run=took_3_s", "run=took_145_s"],
        3,
        {"repeat"},
    ),
    "the same call, always something new": (
        [f"run=line_{letter}" for letter in LETTERS[:6]],
        6,
        {"repeat_changing"},
    ),
    "a poller that never gets on": (["wait_for_job=waiting"] * 15, 15, {"repeat"}),
    "a poller that says so and never gets on": (["process@=waiting"] * 15, 15, {"repeat"}),
    "a job that runs for ever": (["check=~the_build"] * 15, 15, {"repeat"}),
    "a server that stays at its limit": (["search=^slow_down"] * 15, 15, {"repeat"}),
    "Tab, and nothing ever comes of it": (["press_key=pressed"] * 5, 5, {"repeat"}),
    "scrolling and looking, and nothing ever changes": (["scroll=scrolled", "screenshot=view"] * 4, 8, {"cycle"}),
    "to and fro": (["a=x", "b=y", "a=x", "b=y"], 4, {"cycle"}),
    "three in turn": (["a=x", "b=y", "c=z"] * 2, 6, {"cycle"}),
    "five in turn": (["a=x", "b=y", "c=z", "d=w", "e=v"] * 2, 9, {"no_news"}),
    "known calls in any order": (["a=x", "b=y", "c=z", "b=y", "a=x", "c=z", "b=y"], 7, {"no_news"}),
    "the same error, whatever is tried": ([f"run{at}=!no_such_table" for at in range(4)], 4, {"same_error"}),
    "the same error of other names": (
        [f"run{at}=!no_column_'{name}'" for at, name in enumerate("xyxy")],
        4,
        {"same_error"},
    ),
    "many guesses at a name": (
        [f"open{at}=!no_file_'{letter}'" for at, letter in enumerate(LETTERS)],
        8,
        {"same_error"},
    ),
    "paraphrases of an error": (
        [
            "run=!bad_path_/a:_12_tries",
            "run1=!bad_path_/a:_1_tries",
            "run2=!bad_path_/c:_3_tries",
            "run3=!bad_path_/c:_9_tries",
        ],
        4,
        {"same_error"},
    ),
}
UNKNOWN = ["serch=!no_tool", "seerch1=!no_tool", "find_all=!no_tool"]


def found(texts: list[str], tools: set[str] | None = None) -> list[tuple[int, set[str]]]:
    """The rounds, from 1, in which something is found when they come or when their results do, and what."""
    made = rounds(*texts)
    hits = []
    for at, round_ in enumerate(made):
        declares = None if tools is None else tools.__contains__
        pending = [one.call for one in round_.calls]
        judged = Engine(Timeline(made[:at][::-1], declares=declares), SETTINGS).judge_round(pending)
        known = next(Engine(Timeline(made[: at + 1][::-1], declares=declares), SETTINGS).hindsights(), None)
        kinds = {kind for _, finding in judged for kind in (finding.kinds or (finding.kind,))}
        kinds |= {known.kind} if known else set()
        if kinds:
            hits.append((at + 1, kinds))
    return hits


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_let_go(name: str) -> None:
    """Nothing is found in any of its rounds."""
    assert found(HARMLESS[name]) == []


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_caught(name: str) -> None:
    """In that round and in none before, by these kinds at least."""
    texts, at, kinds = LOOPS[name]
    hits = found(texts)
    assert hits[0][0] == at
    assert kinds <= hits[0][1]


def test_unknown_tools() -> None:
    """The third in a row, where the list of tools is complete."""
    assert found(UNKNOWN, {"search", "find"}) == [(3, {"unknown_tool"})]
    assert found(UNKNOWN) == []
    assert found(["search=x", *UNKNOWN[:2], "search1=y", UNKNOWN[2]], {"search", "find"}) == []


def test_a_loop_that_ends_is_over() -> None:
    """Once something new has been executed, the next equal call is the first of its streak."""
    texts = [*["read=x"] * 4, "edit=ok", "read=x", "read=x", "read=x"]
    assert [at for at, _ in found(texts)] == [3, 4, 8]


def test_what_is_denied_stays_denied() -> None:
    """Waiting mends no refusal: the third is a loop. It does mend a limit and a time-out: a poller's limits hold."""
    for said in (
        "The_user_doesn't_want_to_proceed_with_it.",
        "Permission_denied",
        "Unauthorized",
        "401",
        "403_Forbidden",
    ):
        assert found([f"run=!{said}"] * 3)[0] == (3, {"repeat"})
    for said in ("429", "503_Service_Unavailable", "Overloaded", "connection_refused", "timed_out_after_10_s"):
        assert found([f"run=!{said}"] * 14) == []
