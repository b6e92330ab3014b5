"""Runs callfuse as an external processor of Envoy: the middleware around an app whose answers come through Envoy.

Envoy opens one gRPC stream (`envoy.service.ext_proc.v3`) for each HTTP request that it serves, and sends there the
parts of the request and of the vendor's answer; it passes on what is sent back instead. `exchange.py` turns one such
stream into one ASGI exchange, so the guard is that of every other surface.
"""
