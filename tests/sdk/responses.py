"""An agent on the official OpenAI SDK that speaks the Responses API, in every way of asking and of remembering.

In: a base URL and how the conversation is kept. Out: `Run`, each response in order. A way is whole, raw (iterating the
events) or helper (the SDK's own stream object); memory is the client's (`own`), the client's with the vendor storing
items by id (`stored`), or the vendor's (`chain`, `conversation`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import openai

from tests.sdk.talks import MODEL, TOOLS, Way

Keeps = Literal["own", "stored", "chain", "conversation"]
KEEPS: tuple[Keeps, ...] = ("own", "stored", "chain", "conversation")
QUESTION = "What is going on?"


@dataclass(slots=True)
class ResponsesAgent:
    """Runs tools until the model answers in words; `say` and `go_on` are its single steps."""

    url: str
    way: Way = "helper"
    sync: bool = True
    keeps: Keeps = "own"
    extra: dict[str, Any] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)

    async def run(self, question: str = QUESTION, *, result: str = "Nothing new.", most: int = 10) -> list[Any]:
        """From the user's question to an answer without calls; the responses of this run."""
        before = len(self.answers)
        new: list[Any] = [{"role": "user", "content": question}]
        while len(self.answers) - before < most:
            response = await self.say(new)
            new = [
                {"type": "function_call_output", "call_id": item.call_id, "output": result}
                for item in response.output
                if item.type == "function_call"
            ]
            if not new:
                break
        return self.answers[before:]

    async def say(self, new: Sequence[Any]) -> Any:
        """The model's next response to these new items."""
        self.history += new
        asked: dict[str, Any] = {"model": MODEL, "tools": [_tool(name) for name in TOOLS], **self.extra}
        match self.keeps:
            case "own":
                asked |= {"input": self.history, "store": False, "include": ["reasoning.encrypted_content"]}
            case "stored":
                asked |= {"input": self.history}
            case "chain":
                asked |= {"input": list(new)}
                asked |= {"previous_response_id": self.answers[-1].id} if self.answers else {}
            case "conversation":
                asked |= {"input": list(new), "conversation": "conv_of_the_test"}
        client = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0}
        response = await (asyncio.to_thread(self._ask, client, asked) if self.sync else self._ask_async(client, asked))
        self.answers.append(response)
        self.history += response.output
        return response

    def _ask(self, client: Any, asked: dict[str, Any]) -> Any:
        with openai.OpenAI(**client) as connected:
            if self.way == "whole":
                return connected.responses.create(**asked)
            if self.way == "helper":
                with connected.responses.stream(**asked) as reading:
                    return reading.get_final_response()
            with connected.responses.create(stream=True, **asked) as events:
                return _last(list(events))

    async def _ask_async(self, client: Any, asked: dict[str, Any]) -> Any:
        async with openai.AsyncOpenAI(**client) as connected:
            if self.way == "whole":
                return await connected.responses.create(**asked)
            if self.way == "helper":
                async with connected.responses.stream(**asked) as reading:
                    return await reading.get_final_response()
            async with await connected.responses.create(stream=True, **asked) as events:
                return _last([event async for event in events])


def _last(events: list[Any]) -> Any:
    """The response of the terminal event, once the events before it have been seen to be in order."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in events[-1].response.output]
    return events[-1].response


def calls_of(response: Any) -> list[str]:
    """The tools that a response calls."""
    return [item.name for item in response.output if item.type == "function_call"]


def _tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
