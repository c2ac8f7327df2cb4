"""Task capsules: untrusted Python, run in WebAssembly with what its file was granted and nothing else.

The order to read it in: `options` (what a task may be granted), `source` (what a file asks for), `grants`
(what that means on this machine), `instance` (one WebAssembly instance), `service` (what the guest can ask of
the host) and `running` (tries, nested tasks, the envelope). `guest` and `store` make and keep the compiled
interpreter.
"""
