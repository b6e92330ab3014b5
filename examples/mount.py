"""The fuse in front of an app of your own. Serve it with `uvicorn examples.mount:app`.

Any ASGI app that speaks an LLM API will do: vLLM, LiteLLM, a gateway of your own. Where the framework has a list of
middleware, `app.add_middleware(CallFuseMiddleware, config=CONFIG)` says the same.
"""

from callfuse import CallFuseMiddleware
from callfuse.testing import ScriptedVendor, looping_model

CONFIG = {"tool_call_loop": {"mode": "chance_then_block", "max_repeats": 3}}

model_server = ScriptedVendor(looping_model("search_web", {"query": "llamas"}))

app = CallFuseMiddleware(model_server, CONFIG)
