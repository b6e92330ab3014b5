"""Stands for llama-cpp-python, whose wheel is compiled: the factory of its server's app, with the scripted models."""
