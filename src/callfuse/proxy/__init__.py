"""The reverse proxy: an ASGI app that sends every request on to one upstream and streams the answer back.

`settings` holds its validated settings and needs no extra; the app itself is in `app` and needs `callfuse[serve]`.
"""
