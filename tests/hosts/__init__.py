"""Tests in real hosts, each in an environment of its own; only where `CALLFUSE_HOSTS=1` asks for them."""
