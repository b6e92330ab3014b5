"""The official SDKs over sockets."""
