"""What the vendor stores: ids that it knows or does not, and what goes in place of what it would refuse."""

import json
from typing import Any

import pytest

from callfuse.dialects.openai_responses.stored import Trail, repair, resume
from callfuse.dialects.stateful import Continuation
from tests.dialects.openai_responses.wire import Item, function, message, output, reasoning, reply, request, spinning
from tests.support.meeting import Session, in_session

REFERENCE = "item_reference"


def later(*items: Item, known: dict[str, bytes] | None = None, **more: Any) -> list[Item]:
    """The input of a request once it is as the vendor can take it."""
    asked = request(*items, **more)
    found: list[Item] = json.loads(resume(asked.body, json.loads(asked.body), Continuation(known or {})))["input"]
    return found


def test_a_reasoning_item_goes_with_its_call() -> None:
    """It is left out, and each later item of its answer loses its id: one needs the other."""
    trail = Trail(stored=True)
    items = [reasoning("rs_1"), function("call_1"), function("call_2"), reasoning("rs_2"), message()]
    trail.note_withheld(items, {1})
    assert trail.items["rs_1"] == b""
    assert set(trail.items) == {"rs_1", "fc_call_2", "rs_2", "msg_1"}
    assert later(*items[:1], *items[2:], known=trail.items) == [
        {key: value for key, value in item.items() if key != "id"} for item in items[2:]
    ]


def test_reasoning_whose_item_survives_stays() -> None:
    """Only what followed it directly counts; and without a store nothing is known by its id."""
    trail = Trail(stored=True)
    trail.note_withheld([reasoning(), message(), function()], {2})
    assert trail.items == {}
    unstored = Trail(stored=False)
    unstored.note_withheld([reasoning(), function()], {1})
    assert unstored.items == {}


def test_references() -> None:
    """A reference to a changed item becomes the item, one to what is left out goes."""
    known = {"msg_callfuse_1": b'{"type":"message","n":1}', "rs_1": b"", "fc_1": b'{"type":"function_call"}'}
    names = [*known, "fc_9", "msg_callfuse_9"]
    assert later(*({"type": REFERENCE, "id": name} for name in names), known=known) == [
        {"type": "message", "n": 1},
        {"type": "function_call"},
        {"type": REFERENCE, "id": "fc_9"},
    ]


def test_own_messages_lose_their_ids_whatever_is_known() -> None:
    """By their ids alone they are known, so that a lost ledger loses nothing here."""
    (item,) = later(message(id="msg_callfuse_7"))
    assert item == {key: value for key, value in message().items() if key != "id"}


def test_what_needs_no_change_keeps_its_bytes() -> None:
    """Spaces, escapes and all."""
    body = b'{ "input" : [ {"id":"fc_1","a":1.0} ] , "n": 12345678901234567890 }'
    assert resume(body, json.loads(body), Continuation({"other": b""})) == body


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"previous_response_id":"one","input":[1]}', b'{"previous_response_id":"two","input":[{"r":1},1]}'),
        (b'{"previous_response_id":"one","input":[ ]}', b'{"previous_response_id":"two","input":[{"r":1}]}'),
        (b'{"previous_response_id":"one","input":"x"}', None),
        (b'{"conversation":"c","input":[1]}', b'{"conversation":"c","input":[{"r":1},1]}'),
    ],
)
def test_a_chain_goes_on(body: bytes, wanted: bytes | None) -> None:
    """From the last answer that the vendor stored, with results for its open calls put first."""
    changed = resume(body, json.loads(body), Continuation({}, "two", (b'{"r":1}',)))
    if wanted is None:
        assert json.loads(changed)["input"] == [{"r": 1}, {"role": "user", "content": "x"}]
    else:
        assert changed == wanted


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            "No tool output found for function call call_9.",
            [{"type": "function_call_output", "call_id": "call_9", "output": "[callfuse] This call was not run."}],
        ),
        (
            "No tool output found for custom tool call call_9.",
            [{"type": "custom_tool_call_output", "call_id": "call_9", "output": "[callfuse] This call was not run."}],
        ),
    ],
)
def test_a_missing_result_is_added(said: str, wanted: list[Item]) -> None:
    """Where the vendor names a call that nobody answers, it gets an answer."""
    body = repair(b'{"input":[{"a":1}],"x":1.0}', json.dumps({"error": {"message": said}}).encode())
    assert body is not None
    assert json.loads(body)["input"] == [*wanted, {"a": 1}]
    assert body.endswith(b',"x":1.0}')


def test_lone_items_are_put_right() -> None:
    """Reasoning without its item is dropped, an item without its reasoning loses its id."""
    items = [{"type": "reasoning", "id": "rs_1"}, {"type": "message", "id": "msg_1"}]
    body = json.dumps({"input": items}).encode()
    said = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    dropped = repair(body, json.dumps({"error": {"message": said}}).encode())
    said = "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_0'."
    bare = repair(body, json.dumps({"error": {"message": said}}).encode())
    assert dropped is not None
    assert bare is not None
    assert json.loads(dropped)["input"] == items[1:]
    assert json.loads(bare)["input"] == [items[0], {"type": "message"}]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"input":[]}', b'{"error":{"message":"Too many tokens."}}'),
        (b'{"input":[]}', b"<html>"),
        (b"not JSON", b'{"error":{"message":"No tool output found for function call x."}}'),
        (b"[]", b'{"error":{"message":"No tool output found for function call x."}}'),
        (b'{"input":[]}', b'{"error":"no"}'),
        (b'{"input":[{"id":"rs_2"}]}', b'{"error":{"message":"Item \'rs_1\' of type \'reasoning\' was provided"}}'),
    ],
)
def test_other_refusals_stay(body: bytes, error: bytes) -> None:
    """What callfuse has not caused it does not touch."""
    assert repair(body, error) is None


def test_a_client_that_names_its_items_by_reference() -> None:
    """After a block it goes on: callfuse's message goes in full, withheld reasoning not at all."""
    call = function()
    history = spinning(call)

    async def talk(session: Session) -> None:
        met = await session.exchange(request(*history, store=True), reply(reasoning(), call))
        said = [{"type": REFERENCE, "id": item["id"]} for item in output(met.body)]
        await session.exchange(request(*history, *said, "And now?", store=True), reply(message()))

    _, following = in_session(talk).meetings
    asked = json.loads(following.app.heard[0].body)["input"]
    assert asked[:-2] == [item if isinstance(item, dict) else {"role": "user", "content": item} for item in history]
    assert "id" not in asked[-2]
    assert asked[-2]["content"][0]["text"].startswith("[callfuse]")
