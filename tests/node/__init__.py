"""Clients that run on Node, over sockets."""
