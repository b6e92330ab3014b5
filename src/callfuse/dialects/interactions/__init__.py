"""Gemini's Interactions API, `/interactions`: answers are lists of steps, and the vendor stores them by id."""

import re
from typing import Any, ClassVar, Final

from callfuse.dialects.defaults import EventDialect, is_polled
from callfuse.dialects.interactions.answer import (
    InteractionsReader,
    is_unfinished,
    model_turn,
    model_turn_of_whole,
    read_whole,
    said,
)
from callfuse.dialects.interactions.request import InteractionsRequest
from callfuse.dialects.interactions.steps import RESULT
from callfuse.dialects.recorded import Recorded, answer_in, body_in
from callfuse.dialects.shapes import object_of
from callfuse.dialects.tokens import INTERACTIONS
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

_PATH: Final = re.compile(r"/v1(?:alpha|beta)?\w*/(?:projects/[^/]+/locations/[^/]+/)?interactions/?$")


class Interactions(EventDialect):
    """The dialect `gemini-interactions`."""

    name: Final = "gemini-interactions"
    history_key: ClassVar = "input"
    backend: Final = "gemini"
    usual_path: Final = "/v1beta/interactions"
    call_mark: Final = b"function_call"
    counts: ClassVar = INTERACTIONS
    reader: ClassVar = InteractionsReader
    model_turn = staticmethod(model_turn)
    model_turn_of_whole = staticmethod(model_turn_of_whole)
    read_whole = staticmethod(read_whole)
    said = staticmethod(said)
    is_unfinished = staticmethod(is_unfinished)

    def serves(self, path: str) -> bool:
        """Whether the path ends in `/interactions` after a version. Paths below it (stored ones) are not exchanges."""
        return _PATH.search(path) is not None

    def read_request(self, body: bytes, payload: Any, target: str = "") -> InteractionsRequest | None:
        """Return the request if the body has an input. None if the answer is generated in the background without a
        stream: the response then comes before the model has said anything."""
        if not isinstance(payload, dict) or is_polled(payload):
            return None
        return InteractionsRequest(body, payload) if isinstance(payload.get("input"), str | list) else None

    def answer_id(self, payload: Payload) -> str:
        """Return the id of the interaction, from its body or from an event that has it; empty if there is none."""
        interaction = object_of(payload.get("interaction"))
        return str(interaction.get("id") or ("steps" in payload and payload.get("id")) or "")

    def error_body(self, status: int, message: str) -> bytes:
        """Return an error in the API's format."""
        return dumps({"error": {"code": str(status), "message": message}})

    def recognise(self, value: Any) -> Recorded | None:
        """Recognise a request by steps in its `input`, and an answer by a list `steps`."""
        body = body_in(
            value, "input", lambda step: step.get("type") in (RESULT, "user_input", "model_output", "thought")
        )
        return body or answer_in(value, "steps", list)
