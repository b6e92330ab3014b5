"""The scripted vendor's Jot: reads requests, writes answers as lines and as bodies."""

from collections.abc import Iterator, Mapping
from typing import Any

from callfuse.testing.script import Call
from callfuse.testing.turn import Turn, dumps, objects


class JotVendor:
    """`POST .../jot/chat`."""

    name = "jot"
    stream_type = b"application/jsonl"

    def serves(self, path: str) -> bool:
        """Whether `path` is that of chats."""
        return path.endswith("/jot/chat")

    def last_round(self, body: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """The calls and results that end the conversation."""
        messages = objects(body.get("messages"))
        results = [str(one.get("content")) for one in messages if one.get("role") == "tool"]
        calls = [call for one in messages for call in objects(one.get("calls"))]
        return tuple(Call(call["name"], call["arguments"], call["id"]) for call in calls[-1:]), tuple(results[-1:])

    def choice_count(self, body: Mapping[str, Any]) -> int:
        """There is one."""
        return 1

    def frames(self, turn: Turn) -> Iterator[bytes]:
        """A line for each piece of text and each call, and the end."""
        answer = turn.choices[0]
        for piece in turn.pieces(answer.text):
            yield dumps({"text": piece}) + b"\n"
        for call in self._calls(turn):
            yield dumps({"call": call}) + b"\n"
        yield dumps({"end": "calls" if answer.calls else "stop"}) + b"\n"

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The answer as one object."""
        answer = turn.choices[0]
        return {"text": answer.text, "calls": self._calls(turn), "end": "calls" if answer.calls else "stop"}

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Jot's error."""
        return {"error": message}

    def error_frame(self, message: str) -> bytes:
        """An error on a line."""
        return dumps({"error": message}) + b"\n"

    def malformed_frame(self) -> bytes:
        """Half a line."""
        return b'{"text":"bro\n'

    def _calls(self, turn: Turn) -> list[dict[str, Any]]:
        return [
            {"id": turn.call_id("", 0, at, call), "name": call.name, "arguments": call.arguments}
            for at, call in enumerate(turn.choices[0].calls)
        ]
