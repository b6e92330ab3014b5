"""The reverse proxy over real sockets."""
