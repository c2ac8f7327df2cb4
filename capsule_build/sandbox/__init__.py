"""Task capsules: untrusted Python, run in WebAssembly with what its file was granted and nothing else.

The order to read it in: `options` (what a task may be granted), `source` (what a file asks for), `grants`
(what that means on this machine), `instance` (one WebAssembly instance) and `running` (tries, nested tasks,
the envelope, what a guest can ask of the host). `guest` and `store` make and keep the compiled interpreter.
"""
