"""Forward every request to the upstream of its path and stream the answer back: a reverse proxy as an ASGI app.

It needs `callfuse[serve]`. Its settings, in `callfuse.config.serve`, do not.
"""
