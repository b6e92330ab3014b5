"""Implement the commands of the command line. Needs `callfuse[serve]`, except for `listed`.

A wrong setting or option ends a command with exit code 2 and a line for each problem, never with a traceback.
"""
