"""The scripted models as a plain ASGI app, for servers."""

import anyio
from scripted import answer


async def app(scope, receive, send):
    """Answer POSTs, until the client leaves; acknowledge the lifespan."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    reply = await answer(scope["path"], body)
    async with anyio.create_task_group() as tasks:

        async def leave():
            while (await receive())["type"] != "http.disconnect":
                continue
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave)
        headers = [(b"content-type", reply.media_type.encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        async for piece in reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        tasks.cancel_scope.cancel()
