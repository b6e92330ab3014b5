"""What the agents of every framework here have: two tools that write down how they were used.

In: the calls that a framework makes of them. Out: `used`, in order, as (tool, argument). Names and parameters are
those of the scripted model's calls.
"""

from dataclasses import dataclass, field

from callfuse.testing import Answer, Call, VendorRequest

MARK = "[callfuse]"
QUESTION = "What is going on?"
CURRENT, ELSE = ("search_web", "current status"), ("search_web", "something else")
"""What `looping_model` asks for, before and after it reads guidance."""
PAGE = ("read_page", "https://example.org/")
HEALTHY = (
    Answer("Hm.", (Call("search_web", {"query": "llamas"}),)),
    Answer("Hm.", (Call("read_page", {"url": PAGE[1]}),)),
    Answer("They are camelids."),
)


@dataclass(slots=True)
class Toolbox:
    """The tools of one agent."""

    used: list[tuple[str, str]] = field(default_factory=list)

    def search_web(self, query: str) -> str:
        """Search the web."""
        self.used.append(("search_web", query))
        return "Nothing new."

    def read_page(self, url: str) -> str:
        """Read a page."""
        self.used.append(("read_page", url))
        return "Llamas are camelids."


def beside(request: VendorRequest) -> Answer:
    """Reads a page, then searches the same thing for ever, the third time with the page beside it."""
    search, page = Call("search_web", {"query": CURRENT[1]}), Call("read_page", {"url": PAGE[1]})
    if request.guidance:
        return Answer("Enough.")
    return Answer(calls={1: (page,), 4: (search, page)}.get(request.number, (search,)))
