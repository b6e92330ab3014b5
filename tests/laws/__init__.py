"""The laws of the wire, asked of the public ASGI surface for every registered dialect."""
