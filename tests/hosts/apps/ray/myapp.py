"""A FastAPI app with the scripted models."""

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

api = FastAPI()


@api.post("/v1/chat/completions")
async def chat(request: Request):
    """The scripted models; imported by the replica, which gets this function pickled."""
    from scripted import answer

    reply = await answer("/v1/chat/completions", await request.body())
    return StreamingResponse(reply.pieces, reply.status, media_type=reply.media_type)
