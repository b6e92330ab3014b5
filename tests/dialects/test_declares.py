"""Which tools a request declares: a name is unknown only where the request lists all its tools, and it is not there."""

import json
from typing import Any

import pytest

from callfuse.dialects import DIALECTS
from tests.support.asgi import Request
from tests.support.kits import KITS
from tests.support.meeting import MARK, ask, meet, reply
from tests.support.plain import again, spin

OPENAI_TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}
FLAT_TOOL = {"type": "function", "name": "search", "parameters": {}}
ANTHROPIC_TOOL = {"name": "search", "input_schema": {"type": "object"}}
BEDROCK_TOOL = {"toolSpec": {"name": "search", "inputSchema": {"json": {}}}}
HELLO = {"role": "user", "content": "Find it."}


def asked(dialect: str, **fields: Any) -> Any:
    """A request of a dialect with these fields."""
    (found,) = (one for one in DIALECTS if one.name == dialect)
    bodies: dict[str, dict[str, Any]] = {
        "openai-responses": {"input": [HELLO]},
        "gemini-interactions": {"input": "Find it."},
        "anthropic": {"max_tokens": 9, "messages": [HELLO]},
        "bedrock-invoke": {"max_tokens": 9, "messages": [HELLO]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Find it."}]}]},
        "bedrock-converse": {"messages": [{"role": "user", "content": [{"text": "Find it."}]}]},
    }
    body = {"model": "m", **bodies.get(dialect, {"messages": [HELLO]}), **fields}
    request = found.read_request(json.dumps(body).encode(), body, "/model/m/converse")
    assert request is not None
    return request


def whole(dialect: str, *more: Any, **fields: Any) -> Any:
    """A request of a dialect that lists one tool, `search`, and these entries beside it."""
    first = {"openai-responses": FLAT_TOOL, "gemini-interactions": FLAT_TOOL, "bedrock-converse": BEDROCK_TOOL}
    first |= dict.fromkeys(("anthropic", "bedrock-invoke"), ANTHROPIC_TOOL)
    tools: Any = [first.get(dialect, OPENAI_TOOL), *more]
    if dialect == "gemini":
        tools = [{"functionDeclarations": [{"name": "search"}]}, *more]
    if dialect == "bedrock-converse":
        return asked(dialect, toolConfig={"tools": tools}, **fields)
    return asked(dialect, tools=tools, **fields)


every_dialect = pytest.mark.parametrize("dialect", [one.name for one in DIALECTS])


@every_dialect
def test_what_is_listed_is_declared(dialect: str) -> None:
    """The whole name, as it is written there."""
    request = whole(dialect)
    assert request.declares("search")
    assert not request.declares("find")
    assert not request.declares("Search")
    assert not request.declares("sear")


def test_a_name_may_have_a_line_break() -> None:
    """It is one name all the same."""
    request = asked("openai-chat", tools=[{"type": "function", "function": {"name": "one\ntwo"}}])
    assert [request.declares(name) for name in ("one\ntwo", "one", "two")] == [True, False, False]


@every_dialect
@pytest.mark.parametrize("tools", [None, [], "search", {"search": {}}, [None], [5], [{}], [{"name": None}]])
def test_a_list_that_says_nothing_is_not_complete(dialect: str, tools: Any) -> None:
    """No tools, or a shape that nobody knows."""
    fields = {"toolConfig": {"tools": tools}} if dialect == "bedrock-converse" else {"tools": tools}
    assert asked(dialect, **fields).declares("find")


@every_dialect
def test_a_long_name_is_not_searched(dialect: str) -> None:
    """A tool that loads others is known by its name's first 256 characters: a name may be as long as the body."""

    def entry(name: str) -> dict[str, Any]:
        forms: dict[str, dict[str, Any]] = {
            "openai-responses": FLAT_TOOL | {"name": name},
            "gemini-interactions": FLAT_TOOL | {"name": name},
            "anthropic": ANTHROPIC_TOOL | {"name": name},
            "bedrock-invoke": ANTHROPIC_TOOL | {"name": name},
            "bedrock-converse": {"toolSpec": {"name": name}},
            "gemini": {"functionDeclarations": [{"name": name}]},
        }
        return forms.get(dialect, {"type": "function", "function": {"name": name}})

    assert whole(dialect, entry("x" * 240 + "tool_search")).declares("find")
    assert not whole(dialect, entry("x" * 256 + "tool_search")).declares("find")


ADDITIONAL = {"type": "additional_tools", "role": "developer", "tools": [
    {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
]}  # fmt: skip
LOADED = {"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "exec"}]}
ADDITION = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "exec"}}}
REFERENCE = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "search"}}


@pytest.mark.parametrize(
    "request_",
    [
        whole("openai-chat", {"type": "custom", "custom": {"name": "exec"}}),
        whole("openai-chat", {"type": "builtin_function", "function": {"name": "exec"}}),
        whole("openai-chat", {"type": "web_search_20260318", "name": "exec"}),
        whole("openai-chat", functions=[{"name": "exec"}]),
        asked("openai-chat", functions=[{"name": "exec"}]),
        whole("openai-responses", {"type": "custom", "name": "exec"}),
        whole("openai-responses", {"type": "namespace", "name": "a", "tools": [{"type": "custom", "name": "exec"}]}),
        whole("openai-responses", {"type": "web_search"}, {"type": "shell"}, {"type": "function", "name": "exec"}),
        whole("openai-responses", input=[ADDITIONAL, HELLO]),
        asked("openai-responses", input=[ADDITIONAL, HELLO]),
        whole("openai-responses", input=[HELLO, LOADED]),
        whole("anthropic", {"type": "bash_20250124", "name": "exec"}),
        whole("anthropic", {"name": "exec", "defer_loading": True}),
        whole("anthropic", messages=[HELLO, {"role": "system", "content": [{"type": "text", "text": "x"}, ADDITION]}]),
        whole("gemini", {"function_declarations": [{"name": "exec"}]}),
        whole("gemini", {"googleSearch": {}, "functionDeclarations": [{"name": "exec"}]}),
        whole("gemini", {"google_search": {}}, {"url_context": {}}, {"functionDeclarations": [{"name": "exec"}]}),
        whole("bedrock-converse", {"cachePoint": {"type": "default"}}, {"toolSpec": {"name": "exec"}}),
        whole("bedrock-converse", {"systemTool": {"name": "exec"}}),
        whole("bedrock-converse", additionalModelRequestFields={"tools": [{"type": "computer", "name": "exec"}]}),
    ],
)
def test_the_places_of_a_name(request_: Any) -> None:
    """Every place where a tool can stand is looked at, and what is in none of them is unknown."""
    assert request_.declares("exec")
    assert not request_.declares("find")


@pytest.mark.parametrize(
    "request_",
    [
        whole("openai-chat", {"type": "mcp", "server_label": "a"}),
        whole("openai-chat", {"type": "openrouter:web_search"}),
        whole("openai-chat", {"type": "function", "function": {"name": "tool_search"}}),
        whole("openai-responses", {"type": "mcp", "server_label": "a"}),
        whole("openai-responses", {"type": "tool_search"}),
        whole("openai-responses", {"type": "nobody_knows", "name": "a"}),
        whole("openai-responses", prompt={"id": "pmpt_1"}),
        whole("openai-responses", previous_response_id="resp_1"),
        whole("openai-responses", conversation="conv_1"),
        whole("openai-responses", input=[HELLO, LOADED | {"tools": [{"type": "mcp", "server_label": "a"}]}]),
        whole("anthropic", {"type": "mcp_toolset", "mcp_server_name": "a"}),
        whole("anthropic", {"type": "browser_toolset_20260801"}),
        whole("anthropic", {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
        whole("anthropic", {"name": "ToolSearch"}),
        whole("anthropic", mcp_servers=[{"type": "url", "name": "a"}]),
        whole("anthropic", messages=[{"role": "system", "content": [{"type": "tool_addition", "tool": {
            "type": "tool_definition", "definition": {"type": "mcp_toolset", "mcp_server_name": "a"}}}]}, HELLO]),
        whole("gemini", {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
        whole("gemini", {"mcp_servers": [{"name": "a"}]}),
        whole("gemini", {"nobodyKnows": {}}),
        whole("gemini", cachedContent="cachedContents/a"),
        whole("ollama", {"type": "function"}),
        whole("cohere-v2", {"type": "function"}),
        whole("bedrock-converse", {"nobodyKnows": {"name": "a"}}),
        whole("bedrock-converse", additionalModelRequestFields={"tools": [{"type": "mcp_toolset"}]}),
    ],
)  # fmt: skip
def test_tools_that_the_request_does_not_name(request_: Any) -> None:
    """MCP servers, toolsets, tools that load tools, kinds that nobody knows: any tool may come of them."""
    assert request_.declares("search")
    assert request_.declares("find")


@pytest.mark.parametrize(
    "request_",
    [
        whole("gemini", {"codeExecution": {}}, {"googleMaps": None}, {"computerUse": None}),
        whole("anthropic", messages=[HELLO, {"role": "system", "content": [REFERENCE, {"type": "text", "text": "x"}]}]),
        whole("anthropic", messages=[HELLO, {"role": "system", "content": "exec"}]),
        whole("openai-responses", {"type": "code_interpreter"}, {"type": "web_search_preview"}),
        whole("openai-responses", input=[HELLO, {"type": "message", "role": "developer", "content": "exec"}]),
    ],
)
def test_what_brings_no_calls_takes_nothing_from_a_list(request_: Any) -> None:
    """Tools that the vendor runs itself, and messages that only speak of tools."""
    assert not request_.declares("exec")


@pytest.mark.parametrize("name", ["shell_call", "local_shell_call", "apply_patch_call", "computer_call"])
def test_built_in_calls_are_never_unknown(name: str) -> None:
    """A call of a built-in tool of the Responses API goes by its item's type."""
    assert whole("openai-responses", {"type": "shell"}).declares(name)


def test_a_request_that_lists_its_tools_in_the_input_is_no_probe() -> None:
    """Codex lists them nowhere else, and they begin no turn of the model's; in a chain the vendor may know them."""
    request = asked("openai-responses", input=[ADDITIONAL, HELLO])
    assert not request.probe
    assert request.begins_chain
    assert asked("openai-responses", input=[HELLO]).probe
    assert not asked("openai-responses", input=[HELLO], previous_response_id="resp_1").probe


@pytest.mark.parametrize(("more", "loosened"), [([], [b'"auto"']), ([ADDITIONAL], [])])
def test_a_required_choice_stays_while_a_tool_of_the_input_is_open(more: list[Any], loosened: list[bytes]) -> None:
    """These count like those of the list."""
    request = whole("openai-responses", tool_choice="required", input=[*more, HELLO])
    assert [edit.raw for edit in request._loosen_choice()] == loosened


@pytest.mark.parametrize("stream", [True, False])
def test_codex_is_guarded(stream: bool) -> None:
    """A request whose tools stand in its input is held and blocked like any other."""
    (kit,) = (one for one in KITS if one.name == "openai-responses")
    plain = ask(kit, spin(2), stream=stream)
    body = json.loads(plain.body)
    tools = {"type": "additional_tools", "role": "developer", "tools": body.pop("tools")}
    asked_so = Request(plain.path, json.dumps(body | {"input": [tools, *body["input"]]}).encode(), plain.headers)
    met = meet(asked_so, [reply(kit, again(), stream=stream)], "block")
    assert met.app.heard[0].body == asked_so.body
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.calls == ()
    assert MARK in view.text
