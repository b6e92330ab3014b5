"""The demo: one scripted model that loops, one agent, run without and with callfuse. Needs `callfuse[demo]`.

agent      the question, the tool, the scripted model, and a tool loop on the OpenAI SDK
story      what happened, as data
servers    `callfuse serve` as a process of its own, and what it logs
play       both runs, from servers to summary
stages     the story as plain lines, or in two live columns
"""
