"""What of a conversation is typed, what is taken out of it, and what then stands there."""

import json
from typing import Any

import pytest

from callfuse.commands import ParsedText, PrefixSearch, conversation, find_commands, parse_commands
from callfuse.commands.conversation import MAX_SINGLE_SEARCHES, MAX_TEXTS
from callfuse.dialects import DIALECTS
from callfuse.dialects.base import Request
from callfuse.wire.jsontext import apply
from tests.support.rules import violations

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
OWN = "[callfuse] tool-loop-ttl = 9 for this session."
REFUSAL = "[callfuse] Nothing was changed: tool-loop-ttl = 'x': use a number above 0, in seconds."
SET = "!/set(tool-loop-ttl=9)"
REMINDER = {"type": "text", "text": "<system-reminder>\nAGENTS.md says: be brief.\n</system-reminder>"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def text(said: str) -> dict[str, Any]:
    """A part that is a text."""
    return {"type": "text", "text": said}


def user(*content: Any) -> dict[str, Any]:
    """A message of the user: one string, or parts."""
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def model(*content: Any) -> dict[str, Any]:
    """A message of the model."""
    return user(*content) | {"role": "assistant"}


def asked(name: str, messages: list[Any], **more: Any) -> Request:
    """A request of a dialect whose history is a list of messages."""
    key = "input" if name == "openai-responses" else "messages"
    body = json.dumps({"model": "m", "max_tokens": 9, key: messages, **more}).encode()
    request = BY_NAME[name].read_request(body, json.loads(body), "/model/m/converse")
    assert request is not None
    return request


def left(name: str, messages: list[Any], **more: Any) -> list[Any]:
    """The messages without commands."""
    request = asked(name, messages, **more)
    stripped: dict[str, Any] = json.loads(apply(request.body, find_commands(request, "!/").edits))
    found: list[Any] = stripped["input" if name == "openai-responses" else "messages"]
    return found


def ran(messages: list[Any], name: str = "anthropic") -> tuple[list[str], bool]:
    """The commands that are to be run, and whether nothing else is said."""
    found = find_commands(asked(name, messages), "!/")
    return [command.name for command in found.commands], found.only


TASK, DONE = user("Find it."), model("Found.")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([user(SET), model(OWN), TASK], [TASK]),
        ([user(text(SET), text("!/help")), model(OWN), TASK], [TASK]),
        ([user(SET), model(text(OWN)), user(SET), model(OWN), TASK], [TASK]),
        ([TASK, DONE, user(SET), model(OWN), TASK], [TASK, DONE, TASK]),
        ([user(SET), TASK], [TASK]),
        ([user(SET), user(REMINDER), model(OWN), TASK], [user(REMINDER), TASK]),
        ([user(SET), DONE, TASK], [user("(command)"), DONE, TASK]),
        ([user(text(SET), text(SET)), DONE, TASK], [user(text("(command)")), DONE, TASK]),
        ([user(f"{SET}\nFind it."), model("[callfuse] This call loops."), TASK],
         [user("Find it."), model("[callfuse] This call loops."), TASK]),
        ([user(f"{SET}\nFind it."), model(REFUSAL), TASK], [user("Find it."), TASK]),
        ([user(REMINDER, text(SET)), model(OWN), TASK], [user(REMINDER), TASK]),
        ([user(IMAGE, text(SET))], [user(IMAGE)]),
        ([user(text(SET), text(f"{SET}\nFind"), text(SET))], [user(text("Find"), text(SET))]),
        ([user(text("<context>\nx\n</context>"), text(f"{SET}\nFind it."))],
         [user(text("<context>\nx\n</context>"), text("Find it."))]),
        ([user(f"<context>\nx\n</context>\n{SET}\nFind it.")], [user("<context>\nx\n</context>\nFind it.")]),
    ],
    ids=["pair", "parts", "pairs", "later", "not answered", "reminded", "answered by a model",
         "parts answered by a model", "block", "refused", "reminder", "image", "texts",
         "context", "context in the text"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "openai-responses", "cohere-v2"])
def test_what_is_left(name: str, before: list[Any], after: list[Any]) -> None:
    """A message that held nothing else is gone with callfuse's answer; of any other the rest stays."""
    found = left(name, before)
    assert found == after
    if name != "openai-responses":  # its rules know other parts
        assert violations(name, {"model": "m", "max_tokens": 9, "messages": found}) == []


@pytest.mark.parametrize(
    ("messages", "commands", "only"),
    [
        ([user(SET)], ["set"], True),
        ([user(REMINDER, text(SET))], ["set"], True),
        ([user(f"{SET}\n{REMINDER['text']}")], ["set"], True),
        ([user(text(SET), REMINDER)], ["set"], True),
        ([user(text(SET), text("Find it."), REMINDER, REMINDER)], ["set"], False),
        ([user(f"{SET}\nFind it.")], ["set"], False),
        ([user(f"{SET} Find it.")], [], False),
        ([user(f"Find it.\n{SET}")], [], False),
        ([user(IMAGE, text(SET))], ["set"], False),
        ([user(SET), TASK], [], False),
        ([TASK, DONE, user(SET)], ["set"], True),
        ([user(SET), user(REMINDER)], ["set"], True),
        ([user(SET), DONE, user(REMINDER)], ["set"], False),
        ([user(SET), model("{")], ["set"], False),
    ],
    ids=[
        "alone",
        "reminder",
        "reminder in the text",
        "reminder behind it",
        "reminders behind a text",
        "text",
        "text in its line",
        "text before it",
        "image",
        "older",
        "last",
        "before a reminder",
        "answered",
        "before a prefill",
    ],
)
def test_what_is_run(messages: list[Any], commands: list[str], only: bool) -> None:
    """What the last real user message holds."""
    assert ran(messages) == (commands, only)


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
REPLY = {"role": "tool", "tool_call_id": "c1", "content": "x"}
USE = model({"type": "tool_use", "id": "c1", "name": "read", "input": {}})
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
CONVERSE = model({"toolUse": {"toolUseId": "c1", "name": "read", "input": {}}})
CONVERSED = {"toolResult": {"toolUseId": "c1", "content": [{"text": "x"}]}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
BESIDE: list[tuple[str, list[Any]]] = [
    ("openai-chat", [TASK, CALLING, REPLY, user(SET)]),
    ("openai-chat", [TASK, CALLING, REPLY, user("One."), user(SET)]),
    ("ollama", [TASK, CALLING, REPLY, user(SET)]),
    ("cohere-v2", [TASK, CALLING, REPLY, user(SET)]),
    ("anthropic", [TASK, USE, user(RESULT, text(SET))]),
    ("anthropic", [TASK, USE, user(text(SET), RESULT)]),
    ("anthropic", [TASK, USE, user(RESULT), user(SET)]),
    ("bedrock-converse", [user({"text": "Find it."}), CONVERSE, user(CONVERSED, {"text": SET})]),
    ("openai-responses", [TASK, ITEM, OUTPUT, user(SET)]),
    ("openai-chat", [TASK, CALLING, user(SET)]),
    ("openai-chat", [TASK, CALLING, REPLY, model(""), user(SET)]),
    ("anthropic", [TASK, USE, user(SET)]),
    ("openai-responses", [TASK, ITEM, user(SET)]),
    (
        "openai-responses",
        [TASK, ITEM, OUTPUT, {"type": "web_search_call", "id": "w", "status": "completed"}, user(SET)],
    ),
]


@pytest.mark.parametrize(("name", "messages"), BESIDE)
def test_beside_a_result(name: str, messages: list[Any]) -> None:
    """Tools and harnesses write texts of the user's role beside results and behind them: nothing there is a command,
    not in later requests either."""
    assert ran(messages, name) == ([], False)
    kept = model({"text": "Done."}) if name == "bedrock-converse" else DONE
    for later in ([], [kept, user({"text": "Go on."})]):
        assert left(name, [*messages, *later]) == [*messages, *later]
    behind = user({"text": SET}) if name == "bedrock-converse" else user(SET)
    assert ran([*messages, kept, behind], name) == (["set"], True)


def user_of_gemini(*parts: Any) -> dict[str, Any]:
    """A content of the user."""
    return {"role": "user", "parts": list(parts)}


def test_beside_a_result_of_gemini() -> None:
    """The same with its contents."""
    asks = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]}
    says = {"functionResponse": {"name": "read", "response": {"output": "x"}}}
    for contents in (
        [asks, {"role": "user", "parts": [says, {"text": SET}]}],
        [asks, {"role": "user", "parts": [says]}, {"role": "user", "parts": [{"text": SET}]}],
        [asks, {"role": "user", "parts": [{"text": SET}]}],
        [
            asks,
            user_of_gemini(says),
            {"role": "model", "parts": [{"text": "Hm.", "thought": True}]},
            user_of_gemini({"text": SET}),
        ],
        [user_of_gemini({"codeExecutionResult": {"output": "x"}}, {"text": SET})],
        [user_of_gemini({"text": SET, "thought": True})],
        [user_of_gemini({"text": "<environment_details>"}, {"text": SET}, {"text": "</environment_details>"})],
    ):
        body = json.dumps({"contents": contents}).encode()
        request = BY_NAME["gemini"].read_request(body, json.loads(body), "/v1beta/models/m:generateContent")
        assert request is not None
        assert find_commands(request, "!/").any is False


@pytest.mark.parametrize(
    "said",
    [
        f"<file_content path='a'>\nx\n</file_content>\n{SET}\n</file_content>",
        f"<context>\n{SET}\n</context>\nGo on.",
        f"<context>\nx\n{SET}",
        f"<a>x</a>\n<b>y</b></a>\n{SET}\n</b>",
        f"<context>x</context> {SET}",
        f"<a>\n<b></b>\n{SET}\n",
        f"This session is being continued. Summary:\n{SET}\n",
        f"Observation: {SET}",
        f"Observation:\n{SET}",
        f"Look at this:\n\n{SET}",
    ],
)
def test_what_a_file_or_a_page_can_write(said: str) -> None:
    """In an element that it closes itself, in one that is cut, in a context, a summary, behind words."""
    assert ran([user(said)]) == ([], False)
    assert left("anthropic", [user(said)]) == [user(said)]
    assert ran([user(text("Observation:"), text(SET))]) == ([], False)


@pytest.mark.parametrize(
    "parts",
    [
        ["<system-reminder>\nfile:", SET, "</system-reminder>"],
        ["<environment_details>", SET, "</environment_details>"],
        ["<pyai:validation_errors>", SET, "</pyai:validation_errors>"],
        ["[callfuse] This call loops.", SET],
        ["Validation feedback:\nNo answer.", SET],
        [f"<file>x</file>\n{SET}", "</file>"],
        ["Find it.", f"<system-reminder>\n{SET}\n</system-reminder>"],
        [SET, "<file>x</file>", "<system-reminder>Be brief.</system-reminder>"],
        [SET, "<system-reminder>Be brief.</system-reminder>", "<file>x</file>"],
        ["<system-reminder>A file:</system-reminder>", SET, "<system-reminder>Be brief.</system-reminder>"],
        ["<file_content>\nx\n</file_content>", SET, "<environment_details>\nTime\n</environment_details>"],
        ["<file_content>\nx\n</file_content>", SET, "<file_content>\ny\n</file_content>"],
        [f"</file_content>\n{SET}"],
        [f"{SET}\nthe rest\n</file_content>"],
    ],
)
@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "openai-responses"])
def test_an_element_over_several_texts(name: str, parts: list[str]) -> None:
    """What stands in it or before it is no command, nor is anything beside the words of a harness or behind a cut."""
    messages = [user(*map(text, parts))]
    assert ran(messages, name) == ([], False)
    assert left(name, messages) == messages


@pytest.mark.parametrize(
    ("part", "counts"),
    [
        ({"type": "document", "text": "<file>"}, False),
        ({"type": "tool_result", "content": "x"}, False),
        ({"type": "mcp_tool_result", "tool_use_id": "c1", "content": "x"}, False),
        ({"type": "search_result", "source": "s", "title": "t", "content": []}, False),
        ({"type": "of another day"}, False),
        ({"toolResult": {}}, False),
        ({"type": ["text"]}, False),
        (7, False),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, True),
        ({"type": "image_url", "image_url": {"url": "data:"}}, True),
        ({"type": "input_file", "file_id": "f"}, True),
        ({"type": "input_audio", "input_audio": {}}, True),
        ({"image": {"format": "png"}}, True),
        ({"cachePoint": {"type": "default"}}, True),
        ({"inlineData": {}}, True),
    ],
)
def test_parts_beside_a_command(part: Any, counts: bool) -> None:
    """Only what a person attaches (media, files): any other part makes the message one of a tool or a harness."""
    assert ran([user(part, text(SET))]) == (["set"] if counts else [], False)


def test_what_an_own_message_adds() -> None:
    """Some clients send what they add as a message of its own before what is typed, so that still counts."""
    assert ran([user("Contents of README:"), user(SET)]) == (["set"], True)


def test_the_same_in_each_request() -> None:
    """However the conversation goes on, a message is left with the same words, so that prompt caches stay."""
    said = [user(f"{SET}\nFind it.\n{SET}"), DONE, user(f"Now this. {SET}"), DONE, user(f"{SET}\nAnd this.")]
    once = left("anthropic", said[:1])
    assert once == [user(f"Find it.\n{SET}")]
    for end in range(2, len(said) + 1):
        now = left("anthropic", said[:end])
        assert now[: len(once)] == once
        once = now


def test_many_messages_of_commands() -> None:
    """So many are looked at, from the first on; words and other uses of the prefix are not counted."""
    script = user("#!/bin/sh\nWhat is this?")
    many = [user(f"{SET}\nOne.") for _ in range(MAX_TEXTS + 2)]
    found = left("openai-chat", [*[script] * 2 * MAX_TEXTS, *many, TASK])
    assert found[2 * MAX_TEXTS :] == [*[user("One.")] * MAX_TEXTS, *many[:2], TASK]


@pytest.mark.slow
@pytest.mark.parametrize("message", [user(f"{SET}\nOne."), user("!/help " * 40 + "x"), user(*[text(SET)] * 40)])
def test_the_number_of_texts_that_are_parsed_has_a_limit(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many messages, or texts of one message, begin like commands, and however they go on."""
    parsed: list[str] = []

    def counted(text: str, *more: Any) -> ParsedText:
        parsed.append(text)
        return parse_commands(text, *more)

    monkeypatch.setattr(conversation, "parse_commands", counted)
    for times in (MAX_TEXTS, 4 * MAX_TEXTS):
        parsed.clear()
        find_commands(asked("openai-chat", [message] * times), "!/")
        assert len(parsed) == MAX_TEXTS


@pytest.mark.parametrize(
    "report",
    ["[read_file for 'notes.md'] Result:", "[attempt_completion] Result:\n"],
)
def test_a_harness_that_reports_in_texts(report: str) -> None:
    """What a tool has returned is nothing that a person has typed, though it stands in a text of the user's."""
    messages = [TASK, DONE, user(text(report), text(SET))]
    assert ran(messages) == ([], False)
    assert left("anthropic", messages) == messages
    assert ran([TASK, DONE, user(f"{report}\n{SET}")]) == ([], False)


@pytest.mark.parametrize(
    "tag",
    [
        "system-reminder",
        "environment_details",
        "bash-stdout",
        "local-command-stdout",
        "ide_selection",
        "ide_opened_file",
        "file_content",
        "folder_content",
        "url_content",
        "git_working_state",
        "terminal_output",
        "environment_context",
        "user_instructions",
        "INSTRUCTIONS",
    ],
)
def test_what_a_harness_puts_into_a_text(tag: str) -> None:
    """It is neither run nor changed, closed or not."""
    for end in (f"</{tag}>", ""):
        element = f"<{tag}>\n{SET}\n{end}"
        assert ran([user(f"Find it.\n{element}")]) == ([], False)
        assert ran([user(f"!/status\nFind it.\n{element}")]) == (["status"], False)
        assert left("openai-chat", [user(f"!/status\nFind it.\n{element}")])[0]["content"] == f"Find it.\n{element}"


def test_where_turns_must_alternate() -> None:
    """Bedrock's: an answer stays where the message before it does."""
    reminder, typed = {"text": REMINDER["text"]}, {"text": SET}
    kept = model({"text": OWN})
    messages = [user(reminder, typed), kept, user({"text": "Find it."})]
    assert left("bedrock-converse", messages) == [user(reminder), kept, messages[2]]
    assert left("bedrock-converse", [user(typed), kept, messages[2]]) == [messages[2]]


def test_images_beside_a_text() -> None:
    """Ollama's have a key of their own: the message stays."""
    message = user(SET) | {"images": ["aGk="]}
    assert left("ollama", [message]) == [message | {"content": ""}]
    assert ran([message], "ollama") == (["set"], False)


@pytest.mark.parametrize(
    "own",
    [
        {"type": "item_reference", "id": "msg_callfuse_1"},
        {"type": "message", "role": "assistant", "id": "msg_callfuse_1", "content": [
            {"type": "refusal", "refusal": OWN}]},
        {"type": "message", "role": "assistant", "id": "msg_callfuse_1", "content": [
            {"type": "output_text", "text": OWN, "annotations": []}]},
    ],
    ids=["reference", "refusal", "text"],
)  # fmt: skip
def test_answers_as_items(own: dict[str, Any]) -> None:
    """Callfuse's own stand there by their id too, or as a refusal."""
    assert left("openai-responses", [user(SET), own, TASK]) == [TASK]


def test_an_input_that_is_one_text() -> None:
    """As the Responses API takes it."""
    body = json.dumps({"model": "m", "input": f"{SET}\nFind it."}).encode()
    request = BY_NAME["openai-responses"].read_request(body, json.loads(body))
    assert request is not None
    found = find_commands(request, "!/")
    assert apply(body, found.edits) == body.replace(f"{SET}\\n".encode(), b"")
    assert found.only is False


def test_refusals_of_a_schema() -> None:
    """Chat completions answer as a refusal where text would not fit."""
    own = {"role": "assistant", "content": None, "refusal": OWN}
    assert left("openai-chat", [user(SET), own, TASK]) == [TASK]


def test_calls_beside_an_own_text() -> None:
    """A model's message that calls a tool stays, whatever its text begins with."""
    said = model(OWN) | {"tool_calls": [CALL]}
    assert left("openai-chat", [user(SET), said, REPLY]) == [user("(command)"), said, REPLY]


def test_odd_shapes() -> None:
    """What is no message, or has no content, is left alone."""
    odd = [None, "x", {}, {"role": "user"}, user({"type": "text"}), {"role": "user", "content": 7}, TASK]
    for name in BY_NAME:
        if not name.startswith("gemini"):
            assert find_commands(asked(name, odd), "!/").any is False


@pytest.mark.parametrize(
    ("prefix", "texts"),
    [
        ("!/", ["!/", "!\\/"]),
        ("\u00a7", ["\u00a7", "\\u00a7"]),
        ("//", ["//", "\\/\\/"]),
        ("\\!", ["\\\\!"]),
        ("$(", ["$("]),
    ],
)
def test_how_a_prefix_stands_in_json(prefix: str, texts: list[str]) -> None:
    """As it is, or escaped."""
    mark = PrefixSearch(prefix)
    for written in texts:
        assert json.loads(f'"{written}"') == prefix
        assert mark.occurs_in(f'{{"text":"Say {written}status"}}'.encode())
    assert not mark.occurs_in(b'{"text":"Say ! and / and $ and ( ."}')


@pytest.mark.parametrize(
    "marks", [0, 1, MAX_SINGLE_SEARCHES - 1, MAX_SINGLE_SEARCHES, MAX_SINGLE_SEARCHES + 1, 10 * MAX_SINGLE_SEARCHES]
)
def test_a_prefix_behind_many_of_its_first_character(marks: int) -> None:
    """However often that stands in the text by itself."""
    before = marks * "! "
    assert PrefixSearch("!/").occurs_in(f"{before}!/status".encode())
    assert PrefixSearch("!/").occurs_in(f"{before}!\\/status".encode())
    assert not PrefixSearch("!/").occurs_in(f"{before}! / !".encode())
