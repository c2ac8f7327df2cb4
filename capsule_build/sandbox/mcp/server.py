"""The server's tools: each call runs with the limits that whoever started the server has set."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from ... import __version__
from ...runtime.errors import CapsuleError, UsageError
from ..sessions.session import Session, SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_SESSIONS: Final = 64
"""Sessions that may be open at once."""

_INSTRUCTIONS: Final = (
    "Runs Python in a sandbox: no network or files beyond what the user has granted. A call gives what the "
    "code prints, and the value of its last expression. In a session, variables and files stay between calls."
)


class Sandbox:
    """What the tools do.

    Args:
        options: Limits and grants of every call, as `@task` has them.

    Raises:
        UsageError: An option is wrong.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._sessions: dict[str, Session] = {}
        # A wrong option is told now, and not by each call.
        Session(**self._options).close()

    async def execute_python(self, code: str) -> str:
        """Run Python in a sandbox. Gives what it prints, and the value of its last expression."""
        async with Session(**self._options) as session:
            return await _run(session, code)

    async def create_session(self) -> str:
        """Open a session, in which variables and files stay between runs. Gives its id."""
        if len(self._sessions) >= MAX_SESSIONS:
            raise ToolError(f"{MAX_SESSIONS} sessions are open. Close one.")
        identity = secrets.token_hex(8)
        self._sessions[identity] = Session(**self._options)
        return identity

    async def run_in_session(self, session_id: str, code: str) -> str:
        """Run Python in a session. A run that fails changes nothing."""
        return await _run(self._session(session_id), code)

    async def reset_session(self, session_id: str) -> str:
        """Forget all variables and files of a session."""
        self._session(session_id).reset()
        return "The session is as new."

    async def close_session(self, session_id: str) -> str:
        """Close a session, with all that it has."""
        self._session(session_id).close()
        del self._sessions[session_id]
        return "The session is closed."

    def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, identity: str) -> Session:
        try:
            return self._sessions[identity]
        except KeyError:
            raise ToolError(f"There is no session {identity!r}.") from None


async def _run(session: Session, code: str) -> str:
    try:
        return await session.run(code)
    except SessionError as error:
        raise ToolError(f"{error.printed}{error.error_type}: {error}") from None
    except CapsuleError as error:
        raise ToolError(str(error)) from None


def read_options(path: Path) -> dict[str, Any]:
    """Return the options that a TOML file gives.

    Raises:
        UsageError: It can't be read, or is no TOML.
    """
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {error}.") from None


def make_server(sandbox: Sandbox) -> MCPServer[Any]:
    """Return a server that has the sandbox's tools."""
    server: MCPServer[Any] = MCPServer(
        "capsule", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool in (
        sandbox.execute_python,
        sandbox.create_session,
        sandbox.run_in_session,
        sandbox.reset_session,
        sandbox.close_session,
    ):
        server.add_tool(tool, structured_output=False)
    return server


def serve(options: Mapping[str, Any]) -> None:
    """Serve on standard input and output until the input ends."""
    sandbox = Sandbox(options)
    try:
        make_server(sandbox).run("stdio")
    finally:
        sandbox.close()
