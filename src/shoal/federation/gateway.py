"""The door of a server: sites reach Flower's fleet interface through it, and nothing else.

A SuperLink answers everybody on one port: sites, but also whoever wants to start another app on them. So it
listens on this machine only, and this process passes on what sites may ask.

    python -m shoal.federation.gateway HOST PORT INNER_PORT [CA.crt SERVER.crt SERVER.key]
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

FLEET = "/v1/fleet/"
KEPT = {b"content-type", b"content-encoding"}  # of the headers that come back
NOT_PASSED = {b"host", b"connection", b"content-length", b"transfer-encoding"}
FORBIDDEN = 403
JOINING = {"/v1/fleet/activate-node", "/v1/fleet/register-node"}


class Gateway:
    """An ASGI app that passes requests on."""

    def __init__(self, inner: str, authority: str | None) -> None:
        import httpx

        verify: Any = ssl.create_default_context(cafile=authority) if authority else False
        limits = httpx.Limits(max_connections=None)
        self._inner, self._client = inner, httpx.AsyncClient(verify=verify, limits=limits, timeout=None)

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Pass on one request, if it is a site's."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        path, who = scope["path"], (scope.get("client") or ("?",))[0]
        if not path.startswith(FLEET):
            say(f"refused {path} from {who}: it is not for sites")
            await _answer(send, FORBIDDEN, [], b"")
            return
        headers = [(name, value) for name, value in scope["headers"] if name not in NOT_PASSED]
        import httpx

        try:
            found = await self._client.request(
                scope["method"], self._inner + path, headers=headers, content=body
            )
        except httpx.HTTPError as error:
            await _answer(send, 503, [], str(error).encode())
            return
        if path in JOINING and found.status_code >= httpx.codes.BAD_REQUEST:
            say(f"refused {path} from {who}: its key is not on the list ({found.status_code})")
        kept = [(name, value) for name, value in found.headers.raw if name.lower() in KEPT]
        await _answer(send, found.status_code, kept, found.content)


async def _answer(
    send: Callable[[dict[str, Any]], Awaitable[None]],
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    length = (b"content-length", str(len(body)).encode())
    kept = [(name.lower(), value) for name, value in headers if name.lower() != b"content-encoding"]
    await send({"type": "http.response.start", "status": status, "headers": [*kept, length]})
    await send({"type": "http.response.body", "body": body})


def _handshake(record: logging.LogRecord) -> bool:
    """Of what asyncio logs, say only that somebody's TLS failed; its own words are of no use."""
    why = str(record.exc_info[1]) if record.exc_info else ""
    if why and "SSL handshake failed" in record.getMessage():  # without a reason it was closed at once
        say(f"refused a connection: no TLS, or not ours: {why}")
    return False


def say(line: str) -> None:
    """Write to the log."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


def main(arguments: list[str]) -> None:
    """Listen until the process is ended."""
    import uvicorn

    host, port, inner, *secure = arguments
    logging.getLogger("asyncio").setLevel(logging.DEBUG)
    logging.getLogger("asyncio").addFilter(_handshake)
    app = Gateway(f"{'https' if secure else 'http'}://127.0.0.1:{inner}", secure[0] if secure else None)
    tls = {"ssl_certfile": secure[1], "ssl_keyfile": secure[2]} if secure else {}
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=int(port), log_level="warning", **tls))
    asyncio.run(server.serve(), debug=True)  # else nobody hears of those who do not speak TLS


if __name__ == "__main__":
    main(sys.argv[1:])
