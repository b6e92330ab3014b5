"""How harnesses and servers of tools say that there is no such tool; what is about something else."""

import json
from typing import Any

import pytest

from callfuse.model import PastCall, Result, ToolCall
from callfuse.model.outcomes import OutcomeKind, is_failure, outcome_of

TOOL = "fetch_page"

UNKNOWN = [
    "Unknown tool",
    "Unknown tool name",
    f"Unknown tool: {TOOL}",
    f"Unknown tool name: '{TOOL}'. Available tools: 'greet'\n\nFix the errors and try again.",
    f"<tool_use_error>Error: No such tool available: {TOOL}</tool_use_error>",
    f"Error: No such tool available: {TOOL}. {TOOL} is disabled for this session.",
    f"Model tried to call unavailable tool '{TOOL}'. Available tools: bash, read.",
    f"AI_NoSuchToolError: Model tried to call unavailable tool '{TOOL}'. No tools are available.",
    f"The arguments provided to the tool are invalid: Model tried to call unavailable tool '{TOOL}'.",
    f"Error: {TOOL} is not a valid tool, try one of [search, read].",
    f"{TOOL} is not a recognized tool",
    f"MCP error -32602: Tool {TOOL} not found",
    f"MCP error -32602: tool '{TOOL}' not found: tool not found",
    "MCP error -32602: Tool not found",
    f"MCP Error -32602: Tool not found: web.{TOOL}",
    f'Tool "{TOOL}" not found in registry. Did you mean one of: "read_file"?',
    f"Tool not found: {TOOL}",
    f"Tool '{TOOL}' does not exist. Available tools: a, b",
    f'tool "{TOOL}" does not exist',
    f'Unknown tool "{TOOL}". This tool does not exist. Please use one of the available tools.',
    f"Unknown tool {TOOL}, should be one of: a, b",
    f"Action '{TOOL}' don't exist, these are the only available Actions: a",
    f"Error: The tool '{TOOL}' is not available.",
    f"Error: Function {TOOL} not found.",
    f'Error: Requested function "{TOOL}" not found.',
    f"unsupported call: {TOOL}",
    f"unsupported custom tool call: {TOOL}",
    f"Tool with name {TOOL} not found, please select a different tool",
    f"Error: No such tool named `{TOOL}`.",
    f"Unknown action {TOOL}",
    f"There is no tool {TOOL}. The tools are: a.",
    f"No tool named {TOOL} exists",
    f"Error executing tool {TOOL}: Unknown tool: {TOOL}",
    f"ToolError: Unknown tool: 'mcp__web__{TOOL}'",
    f"Unknown tool `functions.{TOOL}`",
    "no such tool",
    {"error": f"Unknown tool: {TOOL}"},
    {"error": "unknown_tool", "requested": TOOL, "candidates": ["fetch_site"]},
    {"error": {"code": "tool_not_found", "message": f"tool {TOOL} does not exist"}},
    {"isError": True, "content": [{"type": "text", "text": f"Unknown tool: {TOOL}"}]},
    [{"type": "text", "text": f"Unknown tool: {TOOL}"}],
]

OTHER = [
    "Unknown tool: fetch",
    "Tool hammer not found",
    "Error: tool wrench not found in inventory",
    f"Error executing tool {TOOL}: page not found",
    "Unknown tool argument: q",
    "Error: invalid tool arguments",
    "Error: Function render not found",
    "Unknown action: click",
    "The tool is not ready",
    f"tool {TOOL} failed: not found",
    "Error: action not found",
    "Error: no tool results",
    f"Tool {TOOL} returned an error: file not found",
    "Tool use was rejected",
    "Error: page not found",
    "bash: fetch_page: command not found",
    "Error: unrecognized function argument --fast",
    f"I looked for it. Unknown tool: {TOOL}",
    {"error": "no such page", "tool": TOOL},
]


@pytest.mark.parametrize("content", UNKNOWN, ids=str)
def test_a_result_that_says_that_there_is_no_such_tool(content: Any) -> None:
    """It is an error of an unknown tool, as a value, as JSON text and however it is asked."""
    for form in (content, json.dumps(content) if not isinstance(content, str) else f"\n{content}\n"):
        outcome = outcome_of(form, None, TOOL)
        assert outcome is not None
        assert (outcome.kind, outcome.unknown_tool) == (OutcomeKind.ERROR, True)
        assert is_failure(form) is True
        past = PastCall(ToolCall("id", TOOL, "{}", namespace="web"), Result(form))
        assert past.outcome is not None
        assert past.outcome.unknown_tool


@pytest.mark.parametrize("content", OTHER, ids=str)
def test_a_complaint_about_something_else(content: Any) -> None:
    """About another tool, the arguments, or what the tool works on."""
    outcome = outcome_of(content, None, TOOL)
    assert outcome is not None
    assert not outcome.unknown_tool


def test_a_result_that_is_no_error_says_nothing_of_it() -> None:
    """The client's own flag decides about errors."""
    outcome = outcome_of(f"Unknown tool: {TOOL}", False, TOOL)
    assert outcome is not None
    assert not outcome.unknown_tool
