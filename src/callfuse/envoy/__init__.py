"""Run callfuse as an external processor of Envoy: the middleware around an app whose answers come through Envoy.

Envoy opens one gRPC stream (`envoy.service.ext_proc.v3`) for each HTTP request that it serves. It sends the parts of
the request and of the vendor's answer there, and forwards the replies in their place. `exchange.py` turns one such
stream into one ASGI exchange, so the same guard is used as everywhere else.
"""
