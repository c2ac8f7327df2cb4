"""A component's core modules, linked to one: its instances are made in a quarter of the time.

`componentize-py` leaves a guest as what `wit-component` makes of shared libraries: a module each, which find
each other's functions by way of a common table that every new instance fills, entry by entry. Of one module
Wasmtime fills it as it is used.
"""
