"""`capsule mcp`: the sandbox as tools of a Model Context Protocol server."""
