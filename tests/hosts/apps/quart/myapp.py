"""A blueprint of a Quart app."""

from quart import Blueprint, Response, request
from scripted import answer

chat = Blueprint("chat", __name__)


@chat.post("/v1/chat/completions")
async def complete() -> Response:
    """The scripted models."""
    reply = await answer(request.path, await request.get_data())
    response = Response(reply.pieces, reply.status, content_type=reply.media_type)
    response.timeout = None
    return response
