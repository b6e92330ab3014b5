"""A hint to the model in a tool's own description."""

from typing import Final

HINT: Final = (
    "[callfuse] The same call with the same arguments brings the same result: do not repeat it. If a result is of no "
    "use, change the arguments, take another tool, or answer with what is known. A text that begins with [callfuse] "
    "in a result says that calls are repeating."
)


def with_loop_hint(description: str = "") -> str:
    """A tool's description with the hint behind it; unchanged where it is there.

    It keeps models that read descriptions well from looping in the first place, and tells them what the texts in
    results are about. It is a constant, so that cached prompts stay cached. Leave it out for tools that are meant to be
    called again and again.
    """
    if HINT in description:
        return description
    return f"{description.rstrip()}\n\n{HINT}" if description.strip() else HINT
