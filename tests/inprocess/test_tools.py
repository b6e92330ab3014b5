"""Guarded tools: what runs, what is given back, what the model reads."""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from callfuse import GuardedTools, LoopDetector, ToolCall, ToolLoopError, ToolResult, with_loop_hint
from callfuse.config import Config
from callfuse.model import MARKER
from callfuse.policy.texts import LOOP_HINT
from tests.inprocess.agents import settings

NOTHING = "no results"


class Search:
    """A tool that counts how often it has run."""

    def __init__(self, result: Any = NOTHING) -> None:
        self.ran = 0
        self.result = result

    def __call__(self, query: str = "llamas", limit: int = 10) -> Any:
        """Search."""
        self.ran += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def guarded(tools: Mapping[str, Callable[..., Any]], *, raise_on_block: bool = False, **keys: Any) -> GuardedTools:
    """These tools around a detector with these settings."""
    return GuardedTools(tools, LoopDetector(settings(**keys), clock=lambda: 0.0), raise_on_block=raise_on_block)


def call(name: str = "search", arguments: object = '{"query": "llamas"}', call_id: str = "c1") -> ToolCall:
    """A call as a model makes it."""
    return ToolCall(call_id, name, arguments)


def texts(tools: GuardedTools, times: int, one: ToolCall | None = None) -> list[str]:
    """What the model reads of the same call again and again."""
    return [tools.run([one or call()])[0].text for _ in range(times)]


def test_a_loop_does_not_run() -> None:
    """The previous result is given back with a text; the tool has run twice."""
    search = Search()
    tools = guarded({"search": search})
    first, second, steered, blocked = texts(tools, 4)
    assert (first, second, search.ran) == (NOTHING, NOTHING, 2)
    assert steered.startswith(f"{NOTHING}\n\n{MARKER} This call was not run. It would have been call 3 of search")
    assert blocked.startswith(f"{NOTHING}\n\n{MARKER} Stopped a tool call loop")


def test_a_function_by_its_name() -> None:
    """The same for frameworks that call functions themselves, however they pass arguments."""
    search = Search()
    tools = guarded({"search": search})
    assert [tools["search"]("llamas"), tools["search"](query="llamas")] == [NOTHING, NOTHING]
    assert tools["search"]("llamas").startswith(f"{NOTHING}\n\n{MARKER} This call was not run.")
    assert all(MARKER in tools["search"]("llamas") for _ in range(3))
    assert tools["search"]("alpacas") == NOTHING
    assert search.ran == 3


def test_a_warning_counts() -> None:
    """It goes behind the result of the call, which has run."""
    search = Search()
    read = texts(guarded({"search": search}, mode="warn", max_repeats=2), 4)
    assert search.ran == 4
    assert [text.partition(f"{MARKER} This is call ")[2][:1] for text in read] == ["", "2", "3", "4"]
    assert all(text.startswith(NOTHING) for text in read)


def test_observing_says_nothing() -> None:
    """The model reads its results as they are."""
    assert texts(guarded({"search": Search()}, mode="observe"), 5) == [NOTHING] * 5


def test_texts_are_templates() -> None:
    """With placeholders for the tool and what it returned."""
    tools = guarded({"search": Search([])}, error_messages={"guidance": "{tool_name} returned {previous_result}!"})
    assert texts(tools, 3)[-1] == f"[]\n\n{MARKER} search returned (nothing)!"


@dataclass
class Row:
    """A result of a program's own type."""

    name: str


@pytest.mark.parametrize(
    ("result", "attached"),
    [
        ("text", "text\n\n{}"),
        ("", "{}"),
        (None, "{}"),
        ({"rows": [1]}, {"rows": [1], "callfuse": "{}"}),
        ([{"type": "text", "text": "x"}], [{"type": "text", "text": "x"}, {"type": "text", "text": "{}"}]),
        ([1, 2], "[1,2]\n\n{}"),
        (7, "7\n\n{}"),
        (Row("a"), '{"name":"a"}\n\n{}'),
    ],
)
def test_results_keep_their_shape(result: Any, attached: Any) -> None:
    """Where it has room for a text; the tool's own value is not changed."""
    before = repr(result)
    tools = guarded({"search": Search(result)}, mode="block", error_messages={"block": "Stop."})
    *_, last = [tools.run([call()])[0] for _ in range(3)]
    expected = f"{MARKER} Stop."
    assert repr(last.content) == repr(attached).replace("{}", expected)
    assert expected in last.text
    assert repr(result) == before


def test_texts_can_be_attached_otherwise() -> None:
    """For results of other types."""

    def attach(result: Row, text: str) -> Row:
        return Row(f"{result.name} {text[:10]}")

    tools = GuardedTools({"search": Search(Row("a"))}, LoopDetector(settings(mode="warn")), attach=attach)
    assert [tools["search"]() for _ in range(3)] == [Row("a"), Row("a"), Row(f"a {MARKER}")]


def test_a_long_result_is_not_given_back() -> None:
    """The text comes alone, with the beginning of the result."""
    *_, last = texts(guarded({"search": Search("word " * 10_000)}), 3)
    assert last.startswith(MARKER)
    assert "It last returned: word word" in last


def test_results_have_names() -> None:
    """Of the call and its tool, in the order of the calls, whatever came of them."""
    tools = guarded({"search": Search(), "fail": Search(ValueError("bad"))})
    calls = [call("fail", {}, "c1"), call("search", {}, "c2"), call("serach", {}, "c3"), call("search", "[1]", "c4"),
             call("search", "{", "c5"), call("search", "", "c6"), call("search", {"no": 1}, "c7")]  # fmt: skip
    results = tools.run(calls)
    assert [result.id for result in results] == ["c1", "c2", "c3", "c4", "c5", "c6", "c7"]
    assert [result.name for result in results] == ["fail", "search", "serach", "search", "search", "search", "search"]
    assert [result.is_error for result in results] == [True, False, True, True, True, False, True]
    assert [type(result.error) for result in results] == [ValueError, *[type(None)] * 5, TypeError]
    assert results[0].text == "ValueError: bad"
    assert results[2].text == f"{MARKER} There is no tool serach. The tools are: search, fail."
    assert results[3].text == f"{MARKER} The arguments of search are not a JSON object."
    assert results[4].text.startswith(f"{MARKER} The arguments of search are not JSON: ")
    assert results[6].text.startswith("TypeError: ")
    assert tools.run([]) == []


def test_unknown_tools_in_a_row() -> None:
    """Are found, whatever their arguments; what was said of them is given back."""
    tools = guarded({"search": Search()})
    results = [tools.run([call("serach", {"at": at})])[0] for at in range(4)]
    assert [result.detection and result.detection.kind for result in results] == [None, None, *["unknown_tool"] * 2]
    assert [result.is_error for result in results] == [True, True, False, False]
    assert "a tool that does not exist, here serach" in results[2].text


def test_a_round_is_judged_as_one() -> None:
    """Of equal new calls of one answer five run, and a new one beside them is progress. Budgets count them."""
    search = Search()
    tools = guarded({"search": search})
    *first, sixth, seventh = [result.text for result in tools.run([call()] * 7)]
    assert (first, search.ran) == ([NOTHING] * 5, 5)
    assert "call 6 of search in one answer" in sixth
    assert "call 7 of search in one answer" in seventh
    assert [result.text for result in tools.run([call(), call("search", {"query": "alpacas"})])] == [NOTHING] * 2
    tools = guarded({"search": search}, max_calls=4)
    results = tools.run([call("search", {"query": str(at)}) for at in range(9)])
    assert [result.text == NOTHING for result in results] == [True] * 4 + [False] * 5


def test_errors_reach_the_model() -> None:
    """With a text once they repeat; previous ones are given back as text."""
    tools = guarded({"search": Search(ValueError("no such index"))})
    read = [tools.run([call("search", {"query": str(at)})])[0] for at in range(4)]
    assert read[3].text.startswith(f"ValueError: no such index\n\n{MARKER} This is round 4 in which search")
    assert read[3].detection is not None
    assert read[3].detection.kind == "same_error"
    tools = guarded({"search": Search(ValueError("no such index"))})
    assert texts(tools, 3)[2].startswith(f"ValueError: no such index\n\n{MARKER} This call was not run.")


def test_a_function_raises_what_its_tool_raises() -> None:
    """With callfuse's texts as notes."""
    error = ValueError("no such index")
    tools = guarded({"search": Search(error)})
    for at in range(4):
        with pytest.raises(ValueError, match="no such index") as raised:
            tools["search"](query=str(at))
        assert raised.value is error
    assert len(error.__notes__) == 1
    assert error.__notes__[0].startswith(f"{MARKER} This is round 4 in which search fails")
    with pytest.raises(TypeError, match="unexpected keyword"):
        tools["search"](nothing=1)


def test_a_block_may_end_the_run() -> None:
    """Where it leaves nothing to run; an innocent call beside it still runs."""
    search = Search()
    tools = guarded({"search": search}, raise_on_block=True, mode="block")
    texts(tools, 2)
    with pytest.raises(ToolLoopError, match="Stopped a tool call loop") as stopped:
        tools.run([call()])
    assert stopped.value.detection.count == 3
    with pytest.raises(ToolLoopError):
        tools["search"](query="llamas")
    looping, innocent = tools.run([call(), call("search", {"query": "alpacas"})])
    assert MARKER in looping.text
    assert innocent.text == NOTHING
    assert search.ran == 3


def test_a_steer_does_not_end_it() -> None:
    """The model has its chance."""
    tools = guarded({"search": Search()}, raise_on_block=True)
    assert MARKER in texts(tools, 3)[2]


def test_off_for_one_agent() -> None:
    """Its functions are its own, its calls run, and a given detector stays out of it."""
    search, detector = Search(), LoopDetector(settings())
    for tools in (
        GuardedTools({"search": search}, detector, enabled=False),
        guarded({"search": search}, enabled=False),
    ):
        assert tools["search"] is search
        assert texts(tools, 6) == [NOTHING] * 6
        assert tools.run([call("serach")])[0].is_error
    assert detector.stats.calls == 0


def test_arguments_that_are_none() -> None:
    """A mistake of the caller's is raised, where one of the model's is told to the model."""
    with pytest.raises(TypeError, match="use a mapping"):
        guarded({"search": Search()}).run([call(arguments=7)])


def test_a_mapping_of_functions() -> None:
    """With their names, signatures and texts; what is no function is refused."""

    def search(query: str, *, limit: int = 10) -> str:
        """Searches the web."""
        return NOTHING

    tools = guarded({"search": search, "partial": functools.partial(search, "llamas")})
    assert list(tools) == ["search", "partial"]
    assert len(tools) == 2
    assert inspect.signature(tools["search"]) == inspect.signature(search)
    assert (tools["search"].__name__, tools["search"].__doc__) == ("search", "Searches the web.")
    assert [tools["partial"](limit=5), tools["partial"](limit=5)] == [NOTHING, NOTHING]
    assert MARKER in tools["partial"](limit=5)
    with pytest.raises(KeyError):
        tools["serach"]
    with pytest.raises(TypeError, match="tool search = 'search': use a function"):
        guarded({"search": "search"})  # type: ignore[dict-item]


def test_arguments_of_any_kind() -> None:
    """Positional, keywords without a name of their own, no signature at all, values that JSON does not know."""

    def keywords(**options: Any) -> str:
        return NOTHING

    def values(*found: Any) -> str:
        return NOTHING

    tools = guarded({"keywords": keywords, "values": values, "largest": max, "hex": hex})
    for name, args, kwargs in [
        ("keywords", (), {"a": {1, 2}}),
        ("values", ({"a": object}, b"x"), {}),
        ("largest", (1, 2), {}),
        ("hex", (255,), {}),
    ]:
        results = [str(tools[name](*args, **kwargs)) for _ in range(3)]
        assert [MARKER in text for text in results] == [False, False, True], name
    assert [tools["keywords"](b=1), tools["keywords"](b=1)] == [NOTHING, NOTHING]
    assert MARKER in tools.run([call("keywords", {"b": 1})])[0].text
    assert values() == NOTHING


def test_equal_calls_at_one_time_are_one() -> None:
    """Those that come while one is running all run, and count once."""
    started, go_on = threading.Barrier(4), threading.Event()

    def slow() -> str:
        started.wait(5)
        go_on.wait(5)
        return NOTHING

    tools = guarded({"slow": slow})
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(tools["slow"]())) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait(5)
    go_on.set()
    for thread in threads:
        thread.join(5)
    assert results == [NOTHING] * 3
    assert tools.detector.stats.calls == 1
    assert not tools._guard._running


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_tools(backend: str) -> None:
    """Run side by side, plain ones too; results are in the order of the calls."""
    order: list[str] = []

    async def slow(name: str) -> str:
        await anyio.sleep(0.01)
        order.append(name)
        return name

    def fast(name: str) -> str:
        order.append(name)
        return name

    async def broken(name: str) -> str:
        raise ValueError(name)

    async def agent() -> list[list[ToolResult]]:
        tools = guarded({"slow": slow, "fast": fast, "broken": broken}, mode="block")
        calls = [call(name, {"name": name}, name) for name in ("slow", "fast", "broken", "none")]
        rounds = [await tools.arun(calls) for _ in range(3)]
        return [*rounds, await tools.arun([])]

    first, _, third, empty = anyio.run(agent, backend=backend)
    assert order == ["fast", "slow"] * 2
    assert [result.text for result in first[:3]] == ["slow", "fast", "ValueError: broken"]
    assert first[3].text.startswith(f"{MARKER} There is no tool none.")
    assert [result.detection is not None for result in third] == [True] * 4
    assert third[0].text.startswith(f"slow\n\n{MARKER} Stopped")
    assert empty == []


async def test_async_functions() -> None:
    """A coroutine function stays one, guarded or given back."""

    async def search(query: str) -> str:
        return NOTHING

    class Lookup:
        async def __call__(self, query: str) -> str:
            raise LookupError(query)

    tools = guarded({"search": search, "lookup": Lookup()})
    assert all(map(inspect.iscoroutinefunction, tools.values()))
    results = [await tools["search"]("llamas") for _ in range(3)]
    assert [MARKER in text for text in results] == [False, False, True]
    with pytest.raises(LookupError):
        await tools["lookup"]("llamas")


async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    """Its result is not known, and the next equal call is judged."""

    async def slow() -> str:
        await anyio.sleep(60)
        return NOTHING

    tools = guarded({"slow": slow})
    for _ in range(2):
        with anyio.move_on_after(0.01):
            await tools["slow"]()
    assert MARKER in await tools["slow"]()
    found = tools.detector.check(call("slow", {}))
    assert found is not None
    assert found.previous is None
    assert tools.detector.stats.calls == 4


def test_async_tools_want_to_be_awaited() -> None:
    """A plain run of one, or a plain function that gives a coroutine, is a mistake and told as such."""

    async def search() -> str:
        return NOTHING

    tools = guarded({"search": search, "disguised": lambda: search()})
    with pytest.raises(TypeError, match="tool search returned an awaitable"):
        tools.run([call("search", {})])
    with pytest.raises(TypeError, match="tool disguised returned an awaitable: define it with `async def`"):
        tools["disguised"]()
    assert anyio.run(tools.arun, [call("disguised", {})])[0].text == NOTHING


def test_a_new_turn_while_a_tool_runs() -> None:
    """Its result comes too late to count, and nothing fails."""

    def search() -> str:
        tools.detector.new_turn()
        return NOTHING

    tools = guarded({"search": search})
    assert [tools["search"]() for _ in range(5)] == [NOTHING] * 5
    assert texts(tools, 2, call("search", {})) == [NOTHING] * 2


def test_without_a_detector() -> None:
    """There is one of its own."""
    tools = GuardedTools({"search": Search()})
    assert MARKER in texts(tools, 3)[2]
    assert tools.detector.settings.model_dump() == Config().tool_call_loop.model_dump()


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Searches the web.", f"Searches the web.\n\n{LOOP_HINT}"),
        ("Searches the web.\n", f"Searches the web.\n\n{LOOP_HINT}"),
        ("", LOOP_HINT),
        (" \n", LOOP_HINT),
    ],
)
def test_the_hint_follows_the_description(description: str, expected: str) -> None:
    """Once, however often it is added."""
    assert with_loop_hint(description) == expected
    assert with_loop_hint(expected) == expected


def test_the_hint_is_marked() -> None:
    """As every text of callfuse's is."""
    assert LOOP_HINT.startswith(MARKER)
