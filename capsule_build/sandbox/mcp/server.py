"""The server's tools: each call runs with the limits that whoever started the server has set."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from ... import __version__
from ...runtime.errors import CapsuleError, UsageError
from ..languages import JAVASCRIPT, PYTHON
from ..sessions.session import OPTIONS, Session, SessionError, run_policy
from .lines import checked_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

MAX_SESSIONS: Final = 64
"""Sessions that may be open at once."""

MAX_FILE_BYTES: Final = 8 << 20
"""Of a file that comes or goes in a message."""

_INSTRUCTIONS: Final = (
    "Runs Python and JavaScript in a sandbox: no network or files beyond what the user has granted. A call "
    "gives what the code prints, and the value of its last expression. In a session, variables and files "
    "stay between calls. The working folder of its runs is /workspace; import_file and export_file reach it."
)

Language = Literal["python", "javascript"]
Encoding = Literal["text", "base64"]

_Result = TypeVar("_Result")


class Sandbox:
    """What the tools do.

    Args:
        options: Limits and grants of every call, as `@task` has them. In `python` and `javascript` are those
            of that language alone; `max_sessions` is how many sessions may be open.
        where: The place that an error names.

    Raises:
        UsageError: An option is wrong.
    """

    def __init__(self, options: Mapping[str, Any], where: str) -> None:
        common = dict(options)
        most = common.pop("max_sessions", MAX_SESSIONS)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_SESSIONS:
            raise UsageError(f"{where}: max_sessions must be a whole number from 1 to {MAX_SESSIONS}.")
        self._most = most
        own = {language: common.pop(language, {}) for language in (PYTHON, JAVASCRIPT)}
        for language, table in own.items():
            if not isinstance(table, dict):
                raise UsageError(f"{where}: [{language}] must be a table of options.")
        # A wrong option is told now, and not by each call.
        for option in common:
            if option not in OPTIONS:
                raise UsageError(
                    f"{where}: there is no option '{option}'. Options: {', '.join(OPTIONS)}, max_sessions; "
                    "and the tables [python] and [javascript], which have all but max_sessions."
                )
        run_policy(common, where)
        for language, table in own.items():
            run_policy(table, f"{where}, [{language}]")
        self._options = {language: {**common, **table} for language, table in own.items()}
        self._sessions: dict[str, Session] = {}

    async def execute_python(self, code: str) -> str:
        """Run Python in a sandbox. Gives what it prints, and the value of its last expression."""
        return await self._execute(PYTHON, code)

    async def execute_javascript(self, code: str) -> str:
        """Run JavaScript in a sandbox. Gives what it prints, and the value of its last expression.

        It may await at its top, and import or require Node's fs, path, util and the like, but no packages.
        """
        return await self._execute(JAVASCRIPT, code)

    async def create_session(self, language: Language = "python") -> str:
        """Open a session, in which variables and files stay between runs. Gives its id."""
        if len(self._sessions) >= self._most:
            raise ToolError(f"{self._most} sessions are open. Close one.")
        identity = secrets.token_hex(8)
        self._sessions[identity] = self._open(language)
        return identity

    async def run_in_session(self, session_id: str, code: str) -> str:
        """Run code in a session, in its language. A run that fails changes nothing."""
        with _told():
            return await self._session(session_id).run(code)

    async def import_file(self, session_id: str, name: str, content: str, encoding: Encoding = "text") -> str:
        """Make a file in a session's folder, of text or of base64. Its name may lie in folders."""
        data = _bytes(content, encoding)
        await self._do(session_id, lambda session: session.write_file(name, data))
        return f"{name} has {len(data)} bytes."

    async def export_file(self, session_id: str, name: str, encoding: Encoding = "text") -> str:
        """Give what a file of a session's folder has, as text or as base64."""
        data = await self._do(session_id, lambda session: session.read_file(name, limit=MAX_FILE_BYTES))
        if encoding == "base64":
            return base64.b64encode(data).decode()
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError(f"{name!r} isn't text in UTF-8. Ask for it as base64.") from None

    async def list_files(self, session_id: str) -> str:
        """List the files of a session's folder: a JSON object of names, and sizes in bytes."""
        return json.dumps(await self._do(session_id, Session.list_files), ensure_ascii=False)

    async def delete_file(self, session_id: str, name: str) -> str:
        """Delete a file of a session's folder."""
        await self._do(session_id, lambda session: session.delete_file(name))
        return f"{name} is deleted."

    async def reset_session(self, session_id: str) -> str:
        """Forget all variables and files of a session."""
        await self._do(session_id, Session.reset)
        return "The session is as new."

    async def close_session(self, session_id: str) -> str:
        """Close a session, with all that it has."""
        session = self._session(session_id)
        del self._sessions[session_id]
        await session.in_turn(session.close)
        return "The session is closed."

    def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _open(self, language: str) -> Session:
        return Session(language, **self._options[language])

    def _session(self, identity: str) -> Session:
        try:
            return self._sessions[identity]
        except KeyError:
            raise ToolError(f"There is no session {identity!r}.") from None

    async def _execute(self, language: str, code: str) -> str:
        with _told():
            async with self._open(language) as session:
                return await session.run_last(code)

    async def _do(self, identity: str, act: Callable[[Session], _Result]) -> _Result:
        session = self._session(identity)
        with _told():
            # It waits for the run that is under way.
            return await session.in_turn(lambda: act(session))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Make what went wrong the tool's error."""
    try:
        yield
    except SessionError as error:
        raise ToolError(f"{error.printed}{error.error_type}: {error}") from None
    except CapsuleError as error:
        raise ToolError(str(error)) from None
    except OSError as error:
        raise ToolError(f"The session's folder can't be used: {error.strerror}.") from None


def _bytes(content: str, encoding: Encoding) -> bytes:
    try:
        data = content.encode() if encoding == "text" else base64.b64decode(content, validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ToolError(f"The content can't be read as {encoding}: {error}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"A file may have {MAX_FILE_BYTES} bytes.")
    return data


def _read_options(path: Path) -> dict[str, Any]:
    """Return the options that a TOML file gives.

    Raises:
        UsageError: It can't be read, or is no TOML.
    """
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {error}.") from None


def make_server(sandbox: Sandbox, end_input: Callable[[], None]) -> MCPServer[Any]:
    """Return a server that has the sandbox's tools, and that ends its input when it ends itself."""

    @contextlib.asynccontextmanager
    async def life(_server: MCPServer[Any]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            # After a Ctrl-C, a SIGTERM: the library waits for the thread that reads.
            end_input()

    server: MCPServer[Any] = MCPServer(
        "capsule", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING", lifespan=life
    )
    for tool in (
        sandbox.execute_python,
        sandbox.execute_javascript,
        sandbox.create_session,
        sandbox.run_in_session,
        sandbox.import_file,
        sandbox.export_file,
        sandbox.list_files,
        sandbox.delete_file,
        sandbox.reset_session,
        sandbox.close_session,
    ):
        server.add_tool(tool, structured_output=False)
    return server


def serve(config: Path | None) -> None:
    """Serve on standard input and output until the input ends.

    Args:
        config: A TOML file of options; `None`: those of a session.

    Raises:
        UsageError: It can't be read, or an option is wrong.
    """
    sandbox = Sandbox({}, "") if config is None else Sandbox(_read_options(config), str(config))
    try:
        with checked_streams() as end_input:
            make_server(sandbox, end_input).run("stdio")
    finally:
        sandbox.close()
