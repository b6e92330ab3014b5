"""Every quirk that a recording shows has a small test of its own, which needs no recording: here is which.

A home is a body in `tests.dialects.test_quirks` (`body: name`), a habit of the kits under every law (`kit: field` of
`tests.support.model.Quirks`, or `kit: always`), or a test by its file and name.
"""

from pathlib import Path

import pytest

from tests.captures.recordings import DIALECTS, FOLDER, entries, unread
from tests.dialects.test_quirks import QUIRKS
from tests.support.model import Quirks

ROOT = Path(__file__).parents[2]
LAWS = "tests/laws/"
RESPONSES = "tests/dialects/openai_responses/test_answer.py::"
GEMINI = "tests/dialects/gemini/"
OLLAMA = "tests/dialects/test_ollama.py::"
OF_VENDORS = ("advisor", "bash_code_execution", "code_execution", "text_editor_code_execution", "tool_search",
              "web_fetch", "web_search")  # fmt: skip

HOMES = {
    "anthropic-messages": {
        **{f"block:{tool}_tool_result": f"body: block:{tool}_tool_result" for tool in OF_VENDORS},
        "block:mcp_tool_result": "body: block:mcp_tool_use, block:mcp_tool_result",
        "block:mcp_tool_use": "body: block:mcp_tool_use, block:mcp_tool_result",
        "block:server_tool_use": "body: a call of the client's beside one of the vendor's that has its result",
        "block_never_stopped": "body: cut by max_tokens: the block never stops, its last event never ends",
        "caller": "tests/guard/test_guard_anthropic.py::test_a_call_of_a_program_is_never_held",
        "empty_arguments": "body: no arguments: one piece of nothing",
        "empty_partial_json": "body: a first piece of nothing",
        "input_in_block_start": "body: the input in the block's start",
        "interleaved_calls": "tests/dialects/anthropic/test_answer.py::test_interleaved_blocks",
        "mcp_tool_use": "body: a whole answer with the vendor's own calls",
        "parallel": f"{LAWS}test_siblings.py::test_the_rest_reads_as_if_the_loop_had_never_been",
        "ping": "kit: noise",
        "server_tool_use": "body: a whole answer with the vendor's own calls",
        "several_messages_in_one_body": "body: a second message_start in the middle of a call",
        "stop_reason=end_turn": "body: block:web_search_tool_result",
        "stop_reason=max_tokens": "body: cut by max_tokens: the block never stops, its last event never ends",
        "stop_reason=refusal": "tests/guard/test_guard_anthropic.py::test_a_call_that_was_cut_off_is_no_evidence",
        "thinking": f"{LAWS}test_block.py::test_thinking_survives_a_block",
        "tool_use": "kit: always",
        "unterminated_last_event": "body: no blank line at the end",
        "whole_call_in_one_chunk": "kit: whole_calls",
    },
    "bedrock-converse": {
        "arguments_object": "tests/dialects/test_bedrock.py::test_the_third_call_is_blocked",
    },
    "cohere-v2": {
        "done_sentinel": "kit: always",
        "parallel": "body: two calls, the pieces of each in its own events",
    },
    "gemini-interactions": {
        "arguments_object": "kit: always",
    },
    "gemini": {
        "arguments_object": "kit: always",
        "crlf": "kit: newline",
        "empty_function_call_terminator": f"{GEMINI}test_answer.py::test_a_call_in_pieces",
        "executable_code": "body: code that Google has run",
        "function_call_id": "kit: always",
        "json_array_stream": "tests/sdk/test_gemini_arrays.py::test_block",
        "no_args_field": "body: no args field",
        "no_call_id": f"{GEMINI}test_through.py::test_a_call_without_id_is_blocked",
        "parallel": f"{GEMINI}test_through.py::test_survivors_in_one_chunk",
        "partial_args": "body: arguments in pieces that nothing ends but the finish",
        "server_tool_call_part": f"{GEMINI}test_through.py::test_an_open_tool_of_the_vendors",
        "several_calls_in_one_chunk": f"{GEMINI}test_through.py::test_survivors_in_one_chunk",
        "thought_part": "body: a thought, and a signature at the call",
        "thought_signature": f"{GEMINI}test_through.py::test_the_stand_in_for_a_signature",
        "finishReason=1": f"{GEMINI}test_answer.py::test_several_calls_in_one_chunk_without_ids",
    },
    "ollama": {
        "arguments_object": "kit: always",
        "content_and_tool_calls_in_one_delta": f"{OLLAMA}test_the_third_call_is_withheld",
        "no_call_id": f"{OLLAMA}test_the_third_call_is_withheld",
        "no_index": "body: the first call without index, the second with index 1",
        "parallel": f"{OLLAMA}test_a_sibling_is_counted_anew",
        "several_calls_in_one_chunk": f"{OLLAMA}test_the_third_call_is_withheld",
        "tool_calls_in_done_chunk": f"{OLLAMA}test_the_third_call_is_withheld",
        "thinking": "body: thinking before the call",
    },
    "openai-chat": {
        "arguments_null": "body: null arguments, then pieces (Writer)",
        "content_and_tool_calls_in_one_delta": "body: content and a call in one delta",
        "done_sentinel": "kit: always",
        "empty_arguments": "body: null arguments of a call without any (Meta)",
        "empty_choices": "body: no choices before the first (Azure)",
        "empty_choices_with_usage": "kit: always",
        "empty_string_id": "kit: empty_id",
        "empty_string_name": "kit: empty_id",
        "error_in_stream": "body: an error event in a 200 (Groq)",
        "finish_reason=function_call": f"{LAWS}test_legacy.py::test_a_third_call_is_blocked",
        "finish_reason=length": "body: cut by the limit behind a whole call",
        "finish_reason=stop": "body: no id, no index, two calls in one chunk (Gemini)",
        "finish_reason_in_tool_chunk": "kit: finish_with_last",
        "finish_reason_repeated": "body: the finish reason again, with the usage (OpenRouter)",
        "first_fragment_without_id": "body: the id comes after the name",
        "id_repeated": "kit: repeat_id",
        "index_does_not_start_at_0": "body: the index begins at 1 (Anthropic behind a proxy)",
        "legacy_function_call": f"{LAWS}test_legacy.py::test_a_whole_third_call_is_blocked",
        "n_gt_1": "kit: interleave",
        "name_repeated": "kit: repeat_id",
        "no_delta": "body: no choices before the first (Azure)",
        "no_done_sentinel": "body: no [DONE]",
        "no_index": "kit: no_index",
        "no_index_no_id": "body: neither id nor index, finish_reason stop in the same chunk (Gemini)",
        "no_type": "body: no type, no index, whole calls with the finish reason (Mistral)",
        "parallel": f"{LAWS}test_siblings.py::test_the_rest_reads_as_if_the_loop_had_never_been",
        "payload_without_choices": "body: an error event in a 200 (Groq)",
        "reasoning_content": "kit: always",
        "reasoning_details": "tests/dialects/openai_chat/test_answer.py::test_reasoning_details",
        "reasoning_field": "tests/dialects/openai_chat/test_answer.py::test_what_vendors_want_back",
        "refusal": "body: a refusal",
        "several_calls_in_one_chunk": "body: no type, no index, whole calls with the finish reason (Mistral)",
        "several_chunk_ids_in_one_body": "body: another id in every chunk",
        "sse_comment": "kit: noise",
        "sse_event_field": "body: an error event in a 200 (Groq)",
        "tool_calls_null": "kit: nulls",
        "tool_delta_after_finish": "body: a finish reason behind each call, more calls behind it",
        "unknown_sse_field": "body: a blank before the first data: no event to a strict reader",
        "unterminated_last_event": "kit: unterminated",
        "usage_with_choices": "body: usage beside the choices",
        "whole_call_in_one_chunk": "kit: whole_calls",
    },
    "openai-responses": {
        "arguments_object": f"{RESPONSES}test_a_third_call_is_blocked",
        "done_sentinel": f"{RESPONSES}test_every_way_of_streaming",
        "end:response.completed": "kit: always",
        "end:response.failed": f"{RESPONSES}test_a_failed_answer_passes",
        "end:response.incomplete": f"{RESPONSES}test_a_call_that_is_cut_off_is_no_evidence",
        "error_in_stream": "body: an error, then response.failed",
        "final_output_empty": f"{RESPONSES}test_every_way_of_streaming",
        "namespace": f"{RESPONSES}test_a_namespace_is_part_of_a_calls_name",
        "no_argument_deltas": f"{RESPONSES}test_every_way_of_streaming",
        "no_event_field": f"{RESPONSES}test_every_way_of_streaming",
        "no_sequence_number": f"{RESPONSES}test_every_way_of_streaming",
        "obfuscation": "body: argument deltas, padded with obfuscation",
        "parallel": f"{RESPONSES}test_a_survivor_is_renumbered",
        "reasoning_item": f"{RESPONSES}test_every_way_of_streaming",
        "server_label": f"{RESPONSES}test_what_the_client_does_not_execute_is_never_held",
        "sse_comment": "body: comments, no event lines, [DONE] (OpenRouter)",
        "whole_call_in_one_chunk": "body: the whole call in one delta",
    },
}
ALL = [pytest.param(folder, home, id=f"{folder}: {quirk}") for folder in HOMES for quirk, home in HOMES[folder].items()]


@pytest.mark.parametrize(("folder", "home"), ALL)
def test_the_home_is_there(folder: str, home: str) -> None:
    """Under the name that is given."""
    kind, _, name = home.partition(": ")
    if kind == "body":
        assert name in {quirk.name for quirk in QUIRKS[DIALECTS[folder]]}
    elif kind == "kit":
        assert name == "always" or name in Quirks.__dataclass_fields__
    else:
        path, _, test = home.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text()


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no captures in {FOLDER}; set CALLFUSE_CAPTURES")
def test_no_quirk_of_a_recording_is_without_one() -> None:
    """Of those that a dialect reads."""
    shown = {
        (key.partition("/")[0], quirk)
        for key, known in entries().items()
        if unread(key) is None
        for quirk in known.get("quirks", ())
    }
    assert shown <= {(folder, quirk) for folder, homes in HOMES.items() for quirk in homes}
