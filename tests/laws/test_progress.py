"""What a result says decides on the wire: what is progress, what is waited for, what is the same error."""

import pytest

from callfuse.model.outcomes import outcome_of
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

two_dialects = pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in ("openai-chat", "anthropic")], ids=lambda kit: kit.name
)


def brought(*results: str, arguments: str = '{"id": 17}', tool: str = "step") -> History:
    """One call that brought each of these."""
    rounds = [Round((Call(f"call_{at}", tool, (arguments,)),), (text,)) for at, text in enumerate(results)]
    return History((User("Find the zebra crossing."), *rounds), tools=("step", "bash"))


def is_stopped(kit: DialectKit, history: History, call: Call, *, stream: bool = True, **settings: object) -> bool:
    """Whether a call is withheld after a conversation, under the ladder `block`; else its answer is untouched."""
    answer = reply(kit, saying(call), stream=stream)
    met = meet(ask(kit, history, stream=stream), [answer], "block", **settings)
    (view,) = kit.read(met.body, stream=stream)
    assert met.body == answer.body or view.calls == ()
    return met.body != answer.body


NEXT = Call("call_next", "step", ('{"id": 17}',))


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("You are at (4,2)", "You are at (4,3)"),
        ("Row 3 selected", "Row 4 selected"),
        ('{"rolled": 5}', '{"rolled": 2}'),
        ("progress 40 %", "progress 55 %"),
        ("jobs: 17, 18", "jobs: 18, 19"),
    ],
)
def test_a_number_that_moves_is_progress(kit: DialectKit, stream: bool, one: str, other: str) -> None:
    """The third equal call goes through; with equal results it does not."""
    assert not is_stopped(kit, brought(one, other), NEXT, stream=stream)
    assert is_stopped(kit, brought(one, one), NEXT, stream=stream)


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 passed in 0.04s", "3 passed in 1.52s"),
        ('{"at": "2026-11-23T10:00:05Z", "request_id": "ab-1"}', '{"at": "2026-11-24T00:00:00Z", "request_id": "x-2"}'),
        ("pid=17 elapsed=3 done", "pid=4711 elapsed=5 done"),
        ("Error: row 3 is locked", "Error: row 4 is locked"),
    ],
)
def test_a_time_that_moves_is_none(kit: DialectKit, stream: bool, one: str, other: str) -> None:
    """Nor are ids of processes and requests, and numbers in errors."""
    assert outcome_of(one) != outcome_of(other)
    assert is_stopped(kit, brought(one, other), NEXT, stream=stream)


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize(
    "state",
    [
        "pending", "queued", "running", "in progress", "in_progress", "not ready", "scheduled", "starting", "building",
        "processing", "waiting", "0/3", "Job 17 is still queued.", '{"id": 17, "status": "not ready"}',
        '{"ready": "0/3"}',
    ],
)  # fmt: skip
def test_a_result_that_says_that_work_goes_on_is_waited_for(kit: DialectKit, stream: bool, state: str) -> None:
    """Its call goes through five times as often as another."""
    assert not is_stopped(kit, brought(*[state] * 5), NEXT, stream=stream)
    assert is_stopped(kit, brought(*["Server running on port 80"] * 5), NEXT, stream=stream)


@two_dialects
@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "sleep 300 && squeue"}',
        '{"cmd": ["bash", "-lc", "sleep 60; squeue"]}',
        '{"code": "!sleep 9; squeue"}',
    ],
)
def test_a_shell_command_that_sleeps_waits(kit: DialectKit, arguments: str) -> None:
    """Whatever its argument is called."""
    call = Call("call_next", "bash", (arguments,))
    for more, waits in (("", True), ("no", False)):
        other = arguments.replace("sleep", f"{more}sleep")
        history = brought(*["17 nodes"] * 5, arguments=other, tool="bash")
        assert is_stopped(kit, history, Call(call.id, "bash", (other,))) is not waits


@two_dialects
def test_paging_with_new_results_is_not_similar(kit: DialectKit) -> None:
    """With equal results it is."""
    pages = [Call(f"call_{at}", "step", (f'{{"query": "zebra crossing", "page": {at}}}',)) for at in range(4)]
    for results, stopped in ((["Hits 1 to 9", "Hits 10 to 19", "Hits 20 to 29"], False), (["Hits"] * 3, True)):
        rounds = [Round((call,), (text,)) for call, text in zip(pages, results, strict=False)]
        history = History((User("Find the zebra crossing."), *rounds), tools=("step",))
        assert is_stopped(kit, history, pages[3], similarity_threshold=0.5) is stopped


@two_dialects
@streamed_and_whole
def test_a_file_is_read_again_after_a_silent_write(kit: DialectKit, stream: bool) -> None:
    """An empty result of a shell's write is no known news: the file may be another."""

    def shell(*commands: tuple[str, str]) -> History:
        made = [
            Round((Call(f"call_{at}", "bash", (f'{{"command": "{command}"}}',)),), (text,))
            for at, (command, text) in enumerate(commands)
        ]
        return History((User("Find the zebra crossing."), *made), tools=("bash",))

    read, red = ("cat a.py", "x = 1"), ("make", "2 tests are red")
    again = Call("call_next", "bash", ('{"command": "cat a.py"}',))
    for silent, stopped in ((("sed -i s/1/2/ a.py", ""), False), (("grep zebra a.py", ""), True)):
        assert is_stopped(kit, shell(read, red, silent, red, read, silent), again, stream=stream) is stopped


@two_dialects
@pytest.mark.parametrize(
    "errors",
    [
        ["<returncode>1</returncode>\n<output>\n</output>"] * 4,
        ["Exit code: 1"] * 4,
        ['{"exit_code": 2, "stdout": "", "stderr": ""}'] * 4,
        ["Command timed out after 30 s", "Command timed out after 31 s"] * 2,
    ],
)
def test_an_error_without_words_is_the_same_error(kit: DialectKit, errors: list[str]) -> None:
    """Whatever the arguments: the fourth is told. A command that takes too long is one, too."""
    assert told(kit, errors) == [False] * 3 + [True]


@two_dialects
@pytest.mark.parametrize(
    "error",
    [
        "user{}@host{}: Permission denied (publickey).",
        "Error: 401 Unauthorized: user{}",
        "HTTP 403: not for {}, host{}",
    ],
)
def test_to_be_refused_again_and_again_is_the_same_error(kit: DialectKit, error: str) -> None:
    """With other arguments each time; as long as each names something new, it takes twice as many."""
    names = ["anna", "bob", "carl", "dora", "emil", "fritz", "gina", "hans", "ida"]
    assert told(kit, [error.format(name, name) for name in names]) == [False] * 7 + [True] * 2
    assert told(kit, [error.format("anna", "anna")] * 4) == [False] * 3 + [True]


@two_dialects
def test_what_waiting_mends_is_no_error_that_comes_again(kit: DialectKit) -> None:
    """However often."""
    assert not any(told(kit, ["Error: 429 Too Many Requests", "Error: request timeout"] * 5))


def told(kit: DialectKit, errors: list[str]) -> list[bool]:
    """Which results carry a warning, of different calls of one tool that ended in these."""
    made = [
        Round((Call(f"call_{at}", "bash", (f'{{"command": "run {at}"}}',)),), (text,)) for at, text in enumerate(errors)
    ]
    request = ask(kit, History((User("Find the zebra crossing."), *made), tools=("bash",)), stream=True)
    met = meet(request, [reply(kit, saying("Done."), stream=True)])
    return [MARK in text for _, text in kit.results(met.app.heard[0].body)]


@two_dialects
@streamed_and_whole
@pytest.mark.parametrize("results", [("done",) * 12, tuple("372915480635")], ids=["equal", "changing"])
def test_a_tool_whose_calls_are_progress_may_go_on(kit: DialectKit, stream: bool, results: tuple[str, ...]) -> None:
    """`changes_state: true`: as long as it succeeds, whatever it returns. One that fails is as any other."""
    acting = {"detectors": {"repeat_changing_most_hard": "none"}}
    progress = acting | {"per_tool": {"step": {"changes_state": True}}}
    assert is_stopped(kit, brought(*results), NEXT, stream=stream, **acting)
    assert not is_stopped(kit, brought(*results), NEXT, stream=stream, **progress)
    assert is_stopped(kit, brought(*["Error: it is locked"] * 3), NEXT, stream=stream, **progress)
