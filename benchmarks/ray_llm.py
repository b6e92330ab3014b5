"""Measure the cost of callfuse in Serve LLM: requests per second, time to first byte, CPU time of the ingress replica.

    python -m benchmarks.ray_llm [--rounds 15] [--requests 10] [--clients 4]

Two apps of `build_openai_app` run in one Ray, each with one replica of ingress and server; one has callfuse in its
ingress. In place of an engine, the server returns 30 pieces of text at once. Requests, rounds and figures are those of
`benchmarks.ray`. Needs an environment with `ray[serve,llm]` and callfuse's own dependencies.
"""

import argparse
import os
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.driving import ASGIApp, Message, Receive, Scope, Send
from benchmarks.proxy import text_events
from benchmarks.ray import APPS, PIECES, parsed, run
from callfuse import CallFuseMiddleware

MODEL: Final = "m"
ENGINE: Final = "benchmarks.ray_llm.Engine"


class Engine:
    """An engine for `LLMServer` that always returns the same text."""

    def __init__(self, llm_config: Any) -> None:
        self.pieces = [piece.decode() for piece in text_events(PIECES - 1)]

    async def start(self) -> None:
        """Do nothing: no model is loaded."""

    async def check_health(self) -> None:
        """Do nothing: the engine is always healthy."""

    async def shutdown(self) -> None:
        """Do nothing: nothing is running."""

    def routing_stats(self) -> dict[str, Any]:
        """Return no data for routing requests."""
        return {}

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[str]:
        """Yield the events of a stream."""
        for piece in self.pieces:
            yield piece


def telling(app: ASGIApp) -> ASGIApp:
    """Return the app with a header that names its process."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-pid", str(os.getpid()).encode())]}
            await send(message)

        await app(scope, receive, send_told)

    return told


def ingress(name: str) -> Any:
    """Return a class of Ray's ingress for one of the apps."""

    def build(self: Any) -> ASGIApp:
        if name == "guarded":
            self.app.add_middleware(CallFuseMiddleware, {})
        self.app.add_middleware(telling)
        app: ASGIApp = self.app
        return app

    base = import_module("ray.serve.llm.ingress").OpenAiIngress
    return type(name, (base,), {"__serve_build_asgi_app__": build})


def deploy(serve: Any) -> None:
    """Run both apps."""
    llm, small = import_module("ray.serve.llm"), {"num_replicas": 1, "ray_actor_options": {"num_cpus": 0.1}}
    config = {
        "model_loading_config": {"model_id": MODEL},
        "placement_group_config": {"bundle_per_worker": {"CPU": 0.1}},
        "deployment_config": small,
    }
    for name in APPS:
        app = llm.build_openai_app(
            {
                "llm_configs": [config],
                "ingress_cls_config": {"ingress_cls": ingress(name)},
                "ingress_deployment_config": small,
            }
        )
        serve.run(app, name=name, route_prefix=f"/{name}")


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options: argparse.Namespace = parsed(__doc__.partition("\n")[0], arguments, requests=10)
    if find_spec("ray") is None or find_spec("vllm") is None:
        print("skipped: Ray or vLLM is not installed here (pip install 'ray[serve,llm]')")
        return
    os.environ.update(RAYLLM_VLLM_ENGINE_CLS=ENGINE, VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
    run(options, deploy)


if __name__ == "__main__":
    main()
