"""The routes of a BentoML service, as an ASGI app."""

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from scripted import answer

api = FastAPI()


@api.post("/v1/chat/completions")
async def chat(request: Request) -> StreamingResponse:
    """The scripted models."""
    reply = await answer("/v1/chat/completions", await request.body())
    return StreamingResponse(reply.pieces, reply.status, media_type=reply.media_type)
