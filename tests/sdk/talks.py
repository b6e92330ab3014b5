"""The official SDKs as agents use them, each in every way of asking.

In: a base URL and a conversation. Out: `Said`, and the messages with which an agent goes on. A way is sync or
async, and whole, raw (iterating the stream) or helper (the SDK's own stream object).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import anthropic
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

Way = Literal["whole", "raw", "helper"]
WAYS: tuple[Way, ...] = ("whole", "raw", "helper")
MODEL = "scripted-model"
TOOLS = ("search_web", "read_page")
QUESTION: dict[str, Any] = {"role": "user", "content": "What is going on?"}


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as an agent reads it, and the message with which it goes into the history."""

    text: str
    thinking: str
    calls: tuple[tuple[str, str], ...]
    """(id, tool)."""
    finish: str | None
    turn: Any


class Talk(Protocol):
    """One SDK, asked in one way."""

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next message."""

    def results(self, said: Said, result: str) -> list[Any]:
        """The messages that answer its calls."""


@dataclass(frozen=True, slots=True)
class OpenAITalk:
    """`openai`, chat completions."""

    url: str
    way: Way
    sync: bool

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next message."""
        asked: dict[str, Any] = {"model": MODEL, "messages": list(messages), "tools": [_openai_tool(n) for n in TOOLS]}
        client = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0}
        if self.sync:
            completion = await asyncio.to_thread(self._ask, client, asked)
        else:
            async with openai.AsyncOpenAI(**client) as connected:  # type: ignore[arg-type]  # mixed keyword types
                completion = await self._ask_async(connected, asked)
        (choice,) = completion.choices
        message = choice.message
        calls = tuple((call.id, call.function.name) for call in message.tool_calls or [])
        thinking = getattr(message, "reasoning_content", None) or ""
        return Said(message.content or "", thinking, calls, choice.finish_reason, message)

    def _ask(self, client: Any, asked: dict[str, Any]) -> Any:
        with openai.OpenAI(**client) as connected:
            if self.way == "whole":
                return connected.chat.completions.create(**asked)
            if self.way == "helper":
                with connected.chat.completions.stream(**asked) as reading:
                    return reading.until_done().get_final_completion()
            state: Any = ChatCompletionStreamState()
            with connected.chat.completions.create(stream=True, **asked) as chunks:
                for chunk in chunks:
                    state.handle_chunk(chunk)
            return state.get_final_completion()

    async def _ask_async(self, connected: openai.AsyncOpenAI, asked: dict[str, Any]) -> Any:
        if self.way == "whole":
            return await connected.chat.completions.create(**asked)
        if self.way == "helper":
            async with connected.chat.completions.stream(**asked) as reading:
                return await (await reading.until_done()).get_final_completion()
        state: Any = ChatCompletionStreamState()
        async with await connected.chat.completions.create(stream=True, **asked) as chunks:
            async for chunk in chunks:
                state.handle_chunk(chunk)
        return state.get_final_completion()

    def results(self, said: Said, result: str) -> list[Any]:
        """A tool message each."""
        return [{"role": "tool", "tool_call_id": call_id, "content": result} for call_id, _ in said.calls]


@dataclass(frozen=True, slots=True)
class AnthropicTalk:
    """`anthropic`, messages."""

    url: str
    way: Way
    sync: bool
    thinks: bool = False

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next message."""
        asked: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": 4096,
            "messages": list(messages),
            "tools": [_anthropic_tool(name) for name in TOOLS],
        }
        if self.thinks:
            asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        client = {"base_url": self.url, "api_key": "none", "max_retries": 0}
        if self.sync:
            message = await asyncio.to_thread(self._ask, client, asked)
        else:
            async with anthropic.AsyncAnthropic(**client) as connected:  # type: ignore[arg-type]  # mixed keyword types
                message = await self._ask_async(connected, asked)
        blocks = message.content
        return Said(
            "".join(block.text for block in blocks if block.type == "text"),
            "".join(block.thinking for block in blocks if block.type == "thinking"),
            tuple((block.id, block.name) for block in blocks if block.type == "tool_use"),
            message.stop_reason,
            {"role": "assistant", "content": message.content},
        )

    def _ask(self, client: Any, asked: dict[str, Any]) -> Any:
        with anthropic.Anthropic(**client) as connected:
            if self.way == "whole":
                return connected.messages.create(**asked)
            with connected.messages.stream(**asked) as reading:
                if self.way == "raw":
                    for _ in reading:
                        continue
                return reading.get_final_message()

    async def _ask_async(self, connected: anthropic.AsyncAnthropic, asked: dict[str, Any]) -> Any:
        if self.way == "whole":
            return await connected.messages.create(**asked)
        async with connected.messages.stream(**asked) as reading:
            if self.way == "raw":
                async for _ in reading:
                    continue
            return await reading.get_final_message()

    def results(self, said: Said, result: str) -> list[Any]:
        """One user message with a tool_result block each."""
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": result} for call_id, _ in said.calls]
        return [{"role": "user", "content": blocks}]


def _openai_tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def _anthropic_tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}}


TALKS = {"openai": OpenAITalk, "anthropic": AnthropicTalk}


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What an agent went through: each answer in order."""

    answers: tuple[Said, ...]

    @property
    def end(self) -> Said:
        """The answer that ended the run."""
        return self.answers[-1]


async def agent(talk: Talk, *, result: str = "Nothing new.", most: int = 10) -> AgentRun:
    """Run tools until the model answers in words."""
    messages, answers = [QUESTION], list[Said]()
    while len(answers) < most:
        said = await talk.say(messages)
        answers.append(said)
        if not said.calls:
            break
        messages += [said.turn, *talk.results(said, result)]
    return AgentRun(tuple(answers))
