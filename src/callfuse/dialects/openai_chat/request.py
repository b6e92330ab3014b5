"""Requests of OpenAI chat completions: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.dialects.base import Block, Note, Reply, Writer
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts
from callfuse.dialects.openai_chat.read import calls_of
from callfuse.dialects.openai_chat.whole import splice_whole, thin_whole
from callfuse.dialects.openai_chat.write import ChatWriter
from callfuse.framing import Payload
from callfuse.jsontext import END, Edit, apply, dumps
from callfuse.model import Result, Round


class ChatRequest:
    """A parsed body and the bytes it came from."""

    __slots__ = (
        "_messages",
        "_payload",
        "_wants_usage",
        "body",
        "choices",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = body
        self._payload = payload
        self._messages: list[Any] = payload["messages"]
        self.length = len(self._messages)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        choices = payload.get("n")
        self.choices = choices if isinstance(choices, int) else 1
        limit = payload.get("max_completion_tokens") or payload.get("max_tokens")
        self.probe = limit == 1 or not (payload.get("tools") or payload.get("functions"))
        options = payload.get("stream_options")
        self._wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        form = payload.get("response_format")
        self.structured = isinstance(form, dict) and form.get("type") in ("json_schema", "json_object")

    def opening(self) -> Iterator[bytes]:
        """System and developer texts up to and with the first user message."""
        for message in self._messages:
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role in ("system", "developer", "user"):
                yield str(role).encode()
                yield from texts(message.get("content"))
            if role == "user":
                return

    def turn(self) -> tuple[int, bytes]:
        """Where the last real user message stands, and its digest."""
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if isinstance(message, dict) and self._is_real_user(position, message):
                return position, digest_of(texts(message.get("content")))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        results: list[tuple[str, Result]] = []
        attached: list[Any] = []
        for position in range(self.length - 1, -1, -1):
            message = self._messages[position]
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role == "tool":
                content = message.get("content")
                results.append(
                    (str(message.get("tool_call_id") or ""), Result([content, *attached] if attached else content))
                )
                attached = []
            elif role == "function":
                results.append(("", Result(message.get("content"))))
            elif role == "assistant":
                if calls := calls_of(message):
                    pair(calls, results[::-1])
                    yield Round(calls, position)
                results = []
            elif role == "user" and self._is_real_user(position, message):
                yield None
                results = []
            elif role == "user" and self._is_attachment(position, message):
                attached = message["content"]

    def _is_real_user(self, position: int, message: Payload) -> bool:
        """Whether a person speaks here: not callfuse, not a harness's reminder, and not the images of a tool."""
        if message.get("role") != "user" or is_own_or_reminder(message.get("content")):
            return False
        return not self._is_attachment(position, message)

    def _is_attachment(self, position: int, message: Payload) -> bool:
        """Whether a user message carries images for the tool message before it, which cannot hold them."""
        content = message.get("content")
        before = self._messages[position - 1] if position else None
        if not isinstance(content, list) or not isinstance(before, dict) or before.get("role") != "tool":
            return False
        return not any(isinstance(part, dict) and part.get("type") == "text" for part in content)

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the content of each named call's tool message."""
        edits: list[Edit] = []
        for place, text in self._results_of(notes).items():
            path = ("messages", place, "content")
            edits += grown(path, self._messages[place].get("content"), text)
        return apply(self.body, edits)

    def _results_of(self, notes: Sequence[Note]) -> dict[int, str]:
        """The indexes of the messages that hold the results, with the texts for them."""
        found: dict[int, str] = {}
        for note in notes:
            calls = calls_of(self._messages[note.position])
            places = []
            for place in range(note.position + 1, self.length):
                message = self._messages[place]
                if not isinstance(message, dict) or message.get("role") not in ("tool", "function"):
                    break
                places.append(place)
            ids = [str(self._messages[place].get("tool_call_id") or "") for place in places]
            at = result_at(calls, ids, note.call)
            if at is not None:
                found[places[at]] = f"{found[places[at]]}\n\n{note.text}" if places[at] in found else note.text
        return found

    def ask_again(self, body: bytes, turn: bytes, replies: Sequence[Reply]) -> bytes:
        """The body with the model's turn and a tool message for each of its calls at the end of the messages."""
        legacy = b'"function_call":' in turn and b'"tool_calls":' not in turn
        new = [turn]
        for reply in replies:
            head: Payload = (
                {"role": "function", "name": reply.call.name}
                if legacy
                else {"role": "tool", "tool_call_id": reply.call.id}
            )
            new.append(dumps(head | {"content": reply.text}))
        edits = [Edit(("messages", END), b",".join(new))]
        return apply(body, edits + self._loosened())

    def writer(self, *, usage: str) -> Writer:
        """A writer for the stream that answers this request."""
        return ChatWriter(structured=self.structured, wants_usage=self._wants_usage, summed=usage == "sum")

    def own_answer(self, text: str) -> bytes:
        """A completion that says this text."""
        message = {"role": "assistant", "content": None if self.structured else text}
        message["refusal"] = text if self.structured else None
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": "chatcmpl-callfuse", "object": "chat.completion", "created": 0, "model": self.model}
        return dumps(head | {"choices": [choice]})

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks, structured=self.structured)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum")

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `auto`; `required` stays while another tool is open."""
        edits = []
        for key, tools in (("tool_choice", "tools"), ("function_call", "functions")):
            choice = self._payload.get(key)
            named = isinstance(choice, dict) and choice.get("type") != "allowed_tools"
            if named or (choice == "required" and len(self._payload.get(tools) or ()) < 2):
                edits.append(Edit((key,), b'"auto"'))
        return edits
