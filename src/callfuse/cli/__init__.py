"""The commands: what is typed goes in, an exit code comes out. Needs `callfuse[serve]`.

A wrong setting or option exits with 2 and says what is wrong in a line each, never with a traceback.
"""
