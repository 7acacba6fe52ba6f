"""The server of a review: the page, the images, and the actions of a person."""

import json
import logging
import re
import sqlite3
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from detector.review.label_studio import PREFIX, Backend
from detector.review.pictures import Pictures
from detector.review.security import Guard
from detector.review.store import ORDERS, Busy, Store
from detector.utils.errors import DataError, UserError, describe_value

logger = logging.getLogger(__name__)

Learning = Callable[[], dict[str, Any] | None]
_TYPES = {"html": "text/html", "mjs": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_PERSON = re.compile(r"[A-Za-z0-9-]{1,40}\Z")
_MOST_IMAGES, _MOST_BOXES, _MOST_HELD, _MOST_AT_ONCE = 20, 200, 100, 100
_LARGEST = 2**53  # of the integers that JavaScript and SQLite both hold


def read_page() -> dict[str, tuple[bytes, str]]:
    """Content and type of each file of the page, by its name; no other file is served."""
    folder = files("detector.review") / "page"
    found = (file for file in folder.iterdir() if file.is_file())
    return {
        file.name: (file.read_bytes(), f"{_TYPES[file.name.rpartition('.')[2]]}; charset=utf-8")
        for file in found
        if file.name.rpartition(".")[2] in _TYPES
    }


class Application:
    """The endpoints of the server. Bodies and answers are JSON, except for pictures."""

    def __init__(
        self, store: Store, pictures: Pictures, title: str, learning: Learning, programs: str = ""
    ) -> None:
        self.programs, self.backend = programs, Backend(store)
        self.store, self.pictures, self.title, self.learning = store, pictures, title, learning
        self.page = read_page()

    def routes(self) -> list[Route]:
        """The addresses."""
        own = [
            Route("/", self._index),
            Route("/page/{name}", self._asset),
            Route("/api/session", self._answer(self._session)),
            Route("/api/progress", self._answer(self._progress)),
            Route("/api/next", self._answer(self._next), methods=["POST"]),
            Route("/api/grid", self._answer(self._grid), methods=["POST"]),
            Route("/api/actions", self._answer(self._actions), methods=["POST"]),
            Route("/api/release", self._answer(self._release), methods=["POST"]),
            Route("/api/images/{number:int}", self._answer(self._image)),
            Route("/api/images/{number:int}/pixels", self._pixels),
            Route("/api/images/{number:int}/crops/{box}", self._crop),
        ]
        if not self.programs:
            return own
        of_backend = {"setup": self.backend.setup, "predict": self.backend.predict}
        of_backend["webhook"] = self.backend.webhook
        return [
            *own,
            Route(f"{self.programs}health", self._answer(lambda _: self.backend.health())),
            *(
                Route(f"{self.programs}{name}", self._answer(function), methods=["POST"])
                for name, function in of_backend.items()
            ),
        ]

    def _answer(self, function: Any) -> Any:
        """An endpoint that calls the function in a thread with the body of a request; errors become JSON."""

        async def endpoint(request: Request) -> Response:
            try:
                given = await _body(request) if request.method == "POST" else request.path_params
                return JSONResponse(await run_in_threadpool(function, given))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return _failure(error)

        return endpoint

    async def _index(self, request: Request) -> Response:
        content, kind = self.page["index.html"]
        return Response(content, media_type=kind)

    async def _asset(self, request: Request) -> Response:
        found = self.page.get(request.path_params["name"])
        return Response(found[0], media_type=found[1]) if found else PlainTextResponse("no such file", 404)

    def _session(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"title": self.title, "classes": self.store.class_names, "orders": ORDERS}

    def _progress(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return self.store.progress() | {"learning": self.learning()}

    def _image(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self.store.image(_integer(given, "number"))

    def _next(self, given: Mapping[str, Any]) -> dict[str, Any]:
        held = given.get("held", [])
        if not isinstance(held, list) or len(held) > _MOST_HELD or not all(map(_is_integer, held)):
            raise DataError(
                f"`held` is {describe_value(held)}, expected up to {_MOST_HELD} numbers of images"
            )
        near, label = given.get("near"), given.get("label")
        if near is not None and not _is_integer(near):
            raise DataError(f"`near` is {describe_value(near)}, expected the number of an image")
        count, order = min(_integer(given, "count"), _MOST_IMAGES), given.get("order", ORDERS[0])
        found = self.store.next_images(_person(given), count, order=order, label=label, near=near, held=held)
        return {"images": found}

    def _grid(self, given: Mapping[str, Any]) -> dict[str, Any]:
        label, count = given.get("label"), min(_integer(given, "count"), _MOST_BOXES)
        if label not in self.store.class_names:
            raise DataError(f"`label` is {describe_value(label)}, expected a class")
        return {"boxes": self.store.undecided_boxes(_person(given), label, count)}

    def _actions(self, given: Mapping[str, Any]) -> dict[str, Any]:
        actions, number, person = given.get("actions"), _integer(given, "image"), _person(given)
        if not isinstance(actions, list) or not 1 <= len(actions) <= _MOST_AT_ONCE:
            raise DataError(f"`actions` is {describe_value(actions)}, expected 1 to {_MOST_AT_ONCE} actions")
        seen = given.get("detector")
        if seen is not None and not isinstance(seen, str):
            raise DataError(f"`detector` is {describe_value(seen)}, expected the one of the image")
        keyed = []
        for action in actions:
            if not isinstance(action, dict) or not _is_name(action.get("key")):
                raise DataError(f"an action is {describe_value(action)}, expected an object with a key")
            keyed.append((action["key"], {name: action[name] for name in action if name != "key"}))
        return {"state": self.store.record(number, person, keyed, seen=seen)}

    def _release(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self.store.release(_person(given))
        return {}

    async def _pixels(self, request: Request) -> Response:
        try:
            content, kind = await run_in_threadpool(self.pictures.encoded, request.path_params["number"])
        except Exception as error:
            return _failure(error)
        return Response(content, media_type=kind, headers={"cache-control": "private, max-age=3600"})

    async def _crop(self, request: Request) -> Response:
        name = request.path_params["box"]

        def crop() -> bytes:
            number = _integer(request.path_params, "number")
            boxes = {box["id"]: box["box"] for box in self.store.state(number)["boxes"]}
            if name not in boxes:
                raise DataError(f"the image has no box {describe_value(name)}")
            return self.pictures.crop(number, boxes[name])

        try:
            return Response(await run_in_threadpool(crop), media_type="image/jpeg")
        except Exception as error:
            return _failure(error)


def make_app(
    store: Store,
    pictures: Pictures,
    *,
    title: str,
    token: str,
    port: int,
    learning: Learning = lambda: None,
    label_studio: str = "",
) -> Guard:
    """The server as an ASGI application, behind its guard.

    Args:
        learning: returns the status of training, see :meth:`detector.review.learner.Learner.status`.
        label_studio: token of the address for Label Studio; "": there is none.
    """
    programs = f"{PREFIX}{label_studio}/" if label_studio else ""
    application = Application(store, pictures, title, learning, programs)
    return Guard(Starlette(routes=application.routes()), token, port, programs=programs)


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = json.loads((await request.body()).decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError("the body is no JSON object")
    return found


def _failure(error: Exception) -> Response:
    """The answer to an error; an unexpected one is logged as well."""
    if isinstance(error, Busy):
        status, message = 409, str(error)
    elif isinstance(error, sqlite3.Error):
        status, message = 507, f"not saved: {error}"
    elif isinstance(error, KeyError):
        status, message = 404, "there is no such image"
    elif isinstance(error, UserError):
        status, message = 400, str(error)
    elif isinstance(error, OSError):
        status, message = 500, f"the picture cannot be read: {error.strerror}"
    else:
        logger.error("internal error of the server, please report it:", exc_info=error)
        status, message = 500, "internal error of the server: its terminal shows more"
    return JSONResponse({"error": message}, status)


def _is_integer(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_PERSON.match(value))


def _integer(given: Mapping[str, Any], key: str) -> int:
    value = given.get(key)
    if not _is_integer(value):
        raise DataError(f"`{key}` is {describe_value(value)}, expected an integer from 0")
    return int(value)  # type: ignore[arg-type]


def _person(given: Mapping[str, Any]) -> str:
    value = given.get("person")
    if not _is_name(value):
        raise DataError(f"`person` is {describe_value(value)}, expected up to 40 letters, digits and hyphens")
    return str(value)
