"""A reverse proxy: an ASGI app that forwards every request to the upstream of its path and streams the answer back.

`settings` holds the validated settings and needs no extra; the app itself is in `app` and needs `callfuse[serve]`.
"""
