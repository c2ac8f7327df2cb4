"""The thin runtime module: the standard library only, and nothing else of the project."""
