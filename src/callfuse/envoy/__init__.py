"""callfuse as an external processor of Envoy: the middleware around an app whose answers Envoy brings.

Envoy opens one gRPC stream (`envoy.service.ext_proc.v3`) for each HTTP request that it serves, and sends there what
comes of the request and of the vendor's answer; what is sent back goes on in its place. `exchange.py` makes one such
stream one ASGI exchange, so the guard is that of every other surface.
"""
