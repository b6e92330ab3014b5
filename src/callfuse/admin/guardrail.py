"""Serve the guardrail endpoint for LiteLLM: check access and limits, and answer.

LiteLLM appends its own path to the configured base URL, and sends its key as `x-api-key`. Its request contains the body
of the client's request, so the same limits apply.
"""

import hmac
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from callfuse.admin.access import Access
from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.body import RequestBody
from callfuse.config.environment import GUARDRAIL_KEY, guardrail_key
from callfuse.integrations.guardrail import Guardrail
from callfuse.wire.jsontext import NotJSON

PATHS: Final = ("/guardrail", "/guardrail/beta/litellm_basic_guardrail_api")
"""The paths of the endpoint; LiteLLM derives the second from the first."""


class GuardrailEndpoint:
    """Answers POSTs with the key of the environment `env`, or with the token of the page in either header.

    Raises ConfigError for an invalid key.
    """

    def __init__(self, middleware: CallFuseMiddleware, access: Access, env: Mapping[str, str]) -> None:
        self._middleware = middleware
        self._access = access
        self._key = guardrail_key(env)
        self._guardrail = Guardrail(middleware)

    async def answer(self, request: Request) -> Response:
        """Answer one request of LiteLLM. A request that exceeds the limits passes, as at the guard itself."""
        if not self._allows(request):
            return JSONResponse({"error": f"use x-api-key with {GUARDRAIL_KEY}, or the token of the admin page"}, 401)
        settings = self._middleware.settings
        body = RequestBody(request.receive, self._middleware.open_share())
        try:
            await body.read(settings.max_request_bytes, settings.read_timeout_s)
            if body.content is None:
                return JSONResponse(self._guardrail.unread(body.unread))
            return JSONResponse(await self._guardrail.answer(body.content))
        except NotJSON:
            return JSONResponse({"error": "send JSON, as LiteLLM's generic guardrail API does"}, 400)
        finally:
            body.close()

    def _allows(self, request: Request) -> bool:
        """Whether a request has the key or the token. A cookie is not enough, because no browser uses this endpoint."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = [request.headers.get("x-api-key", ""), token.strip() if scheme.lower() == "bearer" else ""]
        return any(one != "" and (self._is_key(one) or self._access.is_token(one)) for one in given)

    def _is_key(self, given: str) -> bool:
        """Whether a text is the key. The comparison takes constant time."""
        return self._key is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._key.encode())
