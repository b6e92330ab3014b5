"""Tools that the client describes, as each dialect finds them in a request: their names, descriptions and places."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.wire.jsontext import span
from tests.dialects.reading import dialect_of

TARGETS = {
    "gemini": "/v1beta/models/gemini-test:generateContent",
    "bedrock-converse": "/model/anthropic.claude/converse",
}
USER = {"role": "user", "content": "Hello."}
ONE = {"name": "one", "description": "First."}
TWO = {"name": "two"}
THREE = {"name": "three", "description": None}
CASES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [USER],
        "tools": [
            {"type": "function", "function": ONE},
            {"type": "custom", "custom": TWO},
            {"type": "web_search"},
            {"type": "function", "function": {"description": "Nameless."}},
        ],
        "functions": [THREE],
    },
    "openai-responses": {
        "input": [
            {"type": "additional_tools", "tools": [{"type": "custom"} | THREE]},
            {
                "type": "tool_search_output",
                "tools": [{"type": "function", "name": "found", "description": "A result."}],
            },
        ],
        "tools": [
            {"type": "function"} | ONE,
            {"type": "web_search", "name": "web_search"},
            {"type": "mcp", "server_label": "files"},
            {"type": "namespace", "name": "space", "description": "Of several.", "tools": [{"type": "function"} | TWO]},
        ],
    },
    "anthropic": {
        "max_tokens": 9,
        "messages": [
            USER,
            {"role": "system", "content": [{"type": "tool_addition", "tool": {"definition": THREE}}]},
        ],
        "tools": [ONE, {"type": "custom"} | TWO, {"type": "bash_20250124", "name": "bash"}, {"type": "mcp_toolset"}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hello."}]}],
        "tools": [
            {"functionDeclarations": [ONE]},
            {"google_search": {}},
            {"function_declarations": [TWO, THREE]},
        ],
    },
    "ollama": {
        "messages": [USER],
        "tools": [{"type": "function", "function": one} for one in (ONE, TWO, THREE)],
    },
    "cohere-v2": {
        "messages": [USER],
        "tools": [{"type": "function", "function": one} for one in (ONE, TWO, THREE)],
    },
    "bedrock-converse": {
        "messages": [{"role": "user", "content": [{"text": "Hello."}]}],
        "toolConfig": {
            "tools": [
                {"toolSpec": ONE},
                {"cachePoint": {"type": "default"}},
                {"systemTool": {"name": "nova_grounding"}},
                {"toolSpec": TWO},
                {"toolSpec": THREE},
            ]
        },
        "additionalModelRequestFields": {"tools": [{"type": "computer_20250124", "name": "computer"}]},
    },
}


def described(name: str, payload: dict[str, Any]) -> list[Any]:
    """The described tools of a request."""
    body = json.dumps({"model": "m"} | payload).encode()
    request = dialect_of(name).read_request(body, json.loads(body), TARGETS.get(name, ""))
    assert request is not None
    found = [*request.described_tools()]
    assert all(span(body, tool.path[:-1]) for tool in found)
    for tool in found:
        place = span(body, tool.path)
        assert (json.loads(body[slice(*place)]) if place else None) in (tool.description, None)
    return found


@pytest.mark.parametrize("name", CASES)
def test_those_of_the_client_are_found(name: str) -> None:
    """Each once, whether it has a description or not; those that the vendor runs are not described here."""
    found = {tool.name: tool.description for tool in described(name, CASES[name])}
    assert found == {"one": "First.", "two": "", "three": ""}


ODD: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, "x", True, ONE, TWO, {"name": 1}, {"name": "x", "description": 2}]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["function", "custom", "toolSpec", "functionDeclarations", "tools", "type"]), inner
        ),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", CASES)
@given(odd=ODD)
def test_tools_of_any_shape(name: str, odd: Any) -> None:
    """Whatever stands in the place of tools is read without an error."""
    places = {"tools": odd, "functions": odd, "toolConfig": {"tools": odd}}
    described(name, CASES[name] | places)
