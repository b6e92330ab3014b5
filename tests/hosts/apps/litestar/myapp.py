"""A handler of a Litestar app."""

from litestar import Request, post
from litestar.response import Stream
from scripted import answer


@post("/v1/chat/completions", status_code=200)
async def chat(request: Request) -> Stream:
    """The scripted models."""
    reply = await answer(request.url.path, await request.body())
    return Stream(reply.pieces, status_code=reply.status, media_type=reply.media_type)
