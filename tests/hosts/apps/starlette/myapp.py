"""Routes of a Starlette app."""

from scripted import answer
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def chat(request: Request) -> StreamingResponse:
    """The scripted models."""
    reply = await answer(request.url.path, await request.body())
    return StreamingResponse(reply.pieces, reply.status, media_type=reply.media_type)


routes = [Route("/v1/chat/completions", chat, methods=["POST"])]
