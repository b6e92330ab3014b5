"""Test agents and callfuse with a scripted vendor: no key, no network, the same bytes in every run.

    from callfuse.testing import Answer, Call, ScriptedVendor, served

    vendor = ScriptedVendor([Answer(calls=[Call("search_web", {"query": "llamas"})]), Answer("They are camelids.")])

    with served(vendor) as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        ...

`vendor` is an ASGI app: serve it as above, wrap it in `CallFuseMiddleware`, or give it to an ASGI transport. It
imitates OpenAI (chat completions and Responses), Anthropic, Gemini (Interactions too), Ollama, Cohere and Bedrock, and
keeps every request in `vendor.requests`.
"""

from callfuse.testing.script import Answer, Call, Fault, Usage, VendorRequest, looping_model
from callfuse.testing.serving import served
from callfuse.testing.vendor import ScriptedVendor

__all__ = [
    "Answer",
    "Call",
    "Fault",
    "ScriptedVendor",
    "Usage",
    "VendorRequest",
    "looping_model",
    "served",
]
