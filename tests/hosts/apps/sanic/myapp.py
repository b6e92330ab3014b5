"""A blueprint of a Sanic app."""

from sanic import Blueprint, Request
from scripted import answer

chat = Blueprint("chat")


@chat.post("/v1/chat/completions")
async def complete(request: Request) -> None:
    """The scripted models."""
    reply = await answer(request.path, request.body)
    response = await request.respond(status=reply.status, content_type=reply.media_type)
    async for piece in reply.pieces:
        await response.send(piece)
    await response.eof()
