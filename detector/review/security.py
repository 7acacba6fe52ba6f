"""Protects a local server: it answers only the page itself, in the browser that has the token.

Other sites can make a browser send requests to 127.0.0.1, and can let a host name of theirs point there.
"""

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "[::1]")
_MOST_BYTES = 1 << 20  # of the body of a request
_MOST_OF_TASKS = 32 << 20  # the same for Label Studio, which sends up to 100 tasks
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """Lets requests through that carry the token and come from the page itself.

    The token is in the address that the server prints; the first answer puts it into a cookie and redirects
    to the address without it, so that it stays out of the history.

    Args:
        port: port of the server, for the name of the cookie: browsers send cookies to all ports of a host.
        programs: prefix of the paths for programs, with a token of its own because they have no cookies;
            browsers may not use it.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, *, programs: str = "") -> None:
        self.app, self.token, self.cookie = app, token, f"detector-review-{port}"
        self.programs = programs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # websockets are not used
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._check(scope)
        limited = _limited(receive, _MOST_OF_TASKS if self._is_program(scope) else _MOST_BYTES)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", ())}
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                if b"cache-control" not in own:
                    added.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await (answer or self.app)(scope, limited, with_headers)

    def _check(self, scope: Scope) -> Response | None:
        """The answer to a rejected request; None: it is accepted."""
        headers = _headers(scope)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in HOSTS and host not in HOSTS:
            return PlainTextResponse("this server answers to 127.0.0.1 and localhost alone", 421)
        if self._is_program(scope):
            return _check_program(scope, headers)
        elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if elsewhere and (scope["method"] != "GET" or scope["path"] != "/"):  # a link may lead to the page
            return PlainTextResponse("requests of other sites are not answered", 403)
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") != f"http://{host}":
                return PlainTextResponse("the Origin is not this page", 403)
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return PlainTextResponse("expected the content type application/json", 415)
            if not headers.get("content-length", "0").isdecimal():
                return PlainTextResponse("the content length is no number", 400)
            if int(headers.get("content-length", "0")[:12]) > _MOST_BYTES:
                return PlainTextResponse("the request is too long", 413)
        if scope["path"] == "/" and scope["query_string"]:
            return self._enter(scope)
        if not self._same(_cookies(headers).get(self.cookie, "")):
            message = "open the address that detector review printed: it has the token of this server"
            if scope["path"] == "/":
                return PlainTextResponse(message, 401)
            return JSONResponse({"error": message}, 401)
        return None

    def _is_program(self, scope: Scope) -> bool:
        start = self.programs.encode()
        path = scope["path"].encode("utf-8", "surrogateescape")[: len(start)]
        return bool(start) and hmac.compare_digest(path, start)

    def _enter(self, scope: Scope) -> Response:
        try:
            words = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=10)
        except ValueError:  # more fields
            words = {}
        if not self._same(words.get("token", [""])[0]):
            return PlainTextResponse("the token is wrong: open the address that detector review printed", 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        return answer

    def _same(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())


def _check_program(scope: Scope, headers: Mapping[str, str]) -> Response | None:
    """The answer to a rejected request of a program; browsers are recognized by their headers."""
    if "origin" in headers or "sec-fetch-site" in headers:
        return PlainTextResponse("this address is not for browsers", 403)
    if scope["method"] != "GET" and headers.get("content-type", "").partition(";")[0] != "application/json":
        return PlainTextResponse("expected the content type application/json", 415)
    return None


def _headers(scope: Scope) -> Mapping[str, str]:
    """The headers; one that occurs twice counts as missing, because it is ambiguous."""
    found: dict[str, str] = {}
    twice = set()
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        twice |= {key} & found.keys()
        found[key] = value.decode("latin-1")
    return {key: value for key, value in found.items() if key not in twice - {"cookie", "accept"}}


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        return {key: morsel.value for key, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _limited(receive: Receive, most: int) -> Receive:
    """Disconnect if the body is longer than allowed."""
    total = 0

    async def limited() -> Any:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        return {"type": "http.disconnect"} if total > most else message

    return limited
