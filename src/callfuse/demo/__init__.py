"""The demo: an agent and a scripted model that loops, run without and with callfuse. Needs `callfuse[demo]`.

agent      the question, the tool, the scripted model, and a tool loop on the OpenAI SDK
story      what happened, as data
servers    `callfuse serve` as a separate process, and its log
play       both runs, from servers to summary
stages     the story as plain lines, or in two live columns
"""
