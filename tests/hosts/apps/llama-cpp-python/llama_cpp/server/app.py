"""The factory of the app: FastAPI, streams by sse-starlette, as there."""

import json

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from scripted import answer
from sse_starlette.sse import EventSourceResponse

from llama_cpp.server.settings import ModelSettings, ServerSettings


def create_app(*, server_settings: ServerSettings, model_settings: list[ModelSettings]) -> FastAPI:
    """Make the app, with CORS around it."""
    app = FastAPI()
    app.add_middleware(CORSMiddleware, allow_origins=["*"])

    @app.post("/v1/chat/completions")
    async def chat(request: Request):
        reply = await answer(request.url.path, await request.body())
        if not reply.media_type.startswith("text/event-stream"):
            return json.loads(b"".join([piece async for piece in reply.pieces]))

        async def events():
            async for piece in reply.pieces:
                for line in piece.decode().splitlines():
                    if line.startswith("data: "):
                        yield {"data": line.removeprefix("data: ")}

        return EventSourceResponse(events())

    return app
