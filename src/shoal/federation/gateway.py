"""The gateway of a server: through it, sites reach Flower's fleet interface, and nothing else.

A SuperLink answers all requests on one port: those of sites, but also attempts to start another app on them.
So it listens on this machine only, and this process forwards the requests that sites may make.

A node that asks for messages when there are none sleeps for 3 seconds. So a request that would get such an
answer waits here until the loop rings the bell, that is, touches a file.

    python -m shoal.federation.gateway HOST PORT INNER_PORT BELL [CA.crt SERVER.crt SERVER.key]
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

FLEET = "/v1/fleet/"
KEPT = {b"content-type", b"content-encoding"}  # response headers that are kept
NOT_PASSED = {b"host", b"connection", b"content-length", b"transfer-encoding"}
FORBIDDEN = 403
JOINING = {"/v1/fleet/activate-node", "/v1/fleet/register-node"}
MESSAGES = "/v1/fleet/pull-messages"
EMPTY = 16  # bytes: an answer with a message is longer
LONGEST = 20.0  # seconds that a node waits for an answer here; it gives up after 30
LISTEN = 0.02  # seconds between two checks of the bell

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Gateway:
    """An ASGI app that forwards requests."""

    def __init__(self, inner: str, bell: Path, authority: str | None) -> None:
        import httpx

        verify: Any = ssl.create_default_context(cafile=authority) if authority else False
        limits = httpx.Limits(max_connections=None)
        self._inner, self._client = inner, httpx.AsyncClient(verify=verify, limits=limits, timeout=None)
        self._bell = bell

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Forward a request if it is one that sites may make."""
        if scope["type"] != "http":
            return
        path, who = scope["path"], (scope.get("client") or ("?",))[0]
        if not path.startswith(FLEET):
            say(f"refused {path} from {who}: it is not for sites")
            await _answer(send, FORBIDDEN, [], b"")
            return
        import httpx

        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        try:
            if path == MESSAGES:
                found = await self._messages(scope, body, receive)
            else:
                found = await self._passed(scope, body)
        except httpx.HTTPError as error:
            await _answer(send, 503, [], str(error).encode())
            return
        if path in JOINING and found.status_code >= httpx.codes.BAD_REQUEST:
            say(f"refused {path} from {who}: its key is not on the list ({found.status_code})")
        kept = [(name, value) for name, value in found.headers.raw if name.lower() in KEPT]
        await _answer(send, found.status_code, kept, found.content)

    async def _passed(self, scope: dict[str, Any], body: bytes) -> Any:
        """Forward a request; returns Flower's response."""
        headers = [(name, value) for name, value in scope["headers"] if name not in NOT_PASSED]
        return await self._client.request(
            scope["method"], self._inner + scope["path"], headers=headers, content=body
        )

    async def _messages(self, scope: dict[str, Any], body: bytes, receive: Receive) -> Any:
        """Flower's response as soon as it has a message; after a while, its response that it has none."""
        began, gone = time.monotonic(), asyncio.ensure_future(receive())  # ends when the node hangs up
        try:
            while True:
                rung = self._rung()
                found = await self._passed(scope, body)
                if not found.is_success or len(found.content) >= EMPTY:
                    return found
                while rung == self._rung():
                    await asyncio.wait([gone], timeout=LISTEN)
                    if gone.done() or time.monotonic() - began > LONGEST:
                        return found  # do not fetch a message for a node that has left
        finally:
            gone.cancel()

    def _rung(self) -> int:
        """The time at which the bell last rang."""
        try:
            return self._bell.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    kept = [(name.lower(), value) for name, value in headers if name.lower() != b"content-encoding"]
    await send({"type": "http.response.start", "status": status, "headers": [*kept, length]})
    await send({"type": "http.response.body", "body": body})


def _handshake(record: logging.LogRecord) -> bool:
    """A log filter for asyncio that reports only failed TLS handshakes, in words of our own."""
    why = str(record.exc_info[1]) if record.exc_info else ""
    if why and "SSL handshake failed" in record.getMessage():  # without a reason, it was closed immediately
        say(f"refused a connection: no TLS, or not ours: {why}")
    return False


def say(line: str) -> None:
    """Write to the log."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


def main(arguments: list[str]) -> None:
    """Listen until the process is ended."""
    import uvicorn

    host, port, inner, bell, *secure = arguments
    logging.getLogger("asyncio").setLevel(logging.DEBUG)
    logging.getLogger("asyncio").addFilter(_handshake)
    address = f"{'https' if secure else 'http'}://127.0.0.1:{inner}"
    app = Gateway(address, Path(bell), secure[0] if secure else None)
    tls = {"ssl_certfile": secure[1], "ssl_keyfile": secure[2]} if secure else {}
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=int(port), log_level="warning", **tls))
    asyncio.run(server.serve(), debug=True)  # otherwise, connections without TLS are not logged


if __name__ == "__main__":
    main(sys.argv[1:])
