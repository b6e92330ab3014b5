"""The engine of a Serve LLM app without a model: it gives the ingress what vLLM's engine would, from the scripts."""

import json

from ray.serve.llm.openai_api_models import ChatCompletionResponse
from scripted import answer


class ScriptedEngine:
    """An engine as `LLMServer` calls it. The header `x-script` of a request names the script."""

    def __init__(self, llm_config):
        self.llm_config = llm_config

    async def start(self):
        """Nothing is loaded."""

    async def check_health(self):
        """It is always healthy."""

    async def shutdown(self):
        """Nothing runs."""

    def routing_stats(self):
        """Nothing that routes requests."""
        return {}

    async def chat(self, request, raw_request_info=None):
        """Events of a stream as text, one by one, or one whole answer."""
        headers = raw_request_info.headers if raw_request_info else {}
        body = request.model_dump(mode="json", exclude_unset=True) | {"model": headers.get("x-script", "ready")}
        reply = await answer("/v1/chat/completions", json.dumps(body).encode())
        if request.stream:
            async for piece in reply.pieces:
                yield piece.decode()
        else:
            whole = json.loads(b"".join([piece async for piece in reply.pieces]))
            for choice in whole["choices"]:
                choice["message"].pop("annotations", None)  # vLLM's type has one where OpenAI has a list
            yield ChatCompletionResponse(**whole)
