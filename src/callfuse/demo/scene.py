"""The scene of the demo: a question, a search tool that does not find it, and a model that does not notice.

Everything is made up, deterministic and local. The looping search finds nothing however often it is made; the other
one, which the model thinks of once it has read callfuse's guidance, finds the answer.
"""

from collections.abc import Callable
from typing import Any

from callfuse.testing import Answer, Call, VendorRequest, looping_model

MODEL = "scripted-model"
TOOL = "search_web"
MAX_CALLS = 12
"""The agent's own limit, which is all that ends the run without callfuse."""

QUESTION = "When does the ferry from Svalbrook leave on Sundays?"
SYSTEM = "You are a travel assistant. Use search_web to look things up, and answer from what it finds."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Searches the web and returns the best pages.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What to look for."}},
                "required": ["query"],
            },
        },
    }
]

LOOPING_QUERY = "Svalbrook ferry"
OTHER_QUERY = "Svalbrook harbour"
FOUND = "Sundays 10:15, 16:40"
NOT_FOUND = "no results"
CONCLUSION = "On Sundays the ferry leaves at 10:15 and at 16:40, as the harbour office says."


def search_web(query: str) -> str:
    """The tool that the agent runs."""
    return FOUND if query == OTHER_QUERY else NOT_FOUND


def model(*, stubborn: bool) -> Callable[[VendorRequest], Answer]:
    """The model that the vendor plays."""
    return looping_model(
        TOOL,
        {"query": LOOPING_QUERY},
        text="Let me search for that.",
        after_guidance=Answer("That search will not find it. I try another one.", [Call(TOOL, {"query": OTHER_QUERY})]),
        conclusion=CONCLUSION,
        stubborn=stubborn,
    )
