"""A reverse proxy: an ASGI app that forwards every request to the upstream of its path and streams the answer back.

It needs `callfuse[serve]`. Its settings, `callfuse.config.serve`, do not.
"""
