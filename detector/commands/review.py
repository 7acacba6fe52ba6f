"""The command `detector review`."""

import secrets
import socket
import threading
import webbrowser
from argparse import Namespace
from contextlib import nullcontext, suppress
from pathlib import Path

import uvicorn

from detector.data.formats import ReviewImage, review_file
from detector.labeling.label import check_formats, encode_all
from detector.review.label_studio import PREFIX, backend_token
from detector.review.learner import Learner
from detector.review.server import Learning, make_app
from detector.review.session import Session, open_session
from detector.utils.command_line import next_step
from detector.utils.errors import UserError, counted
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

HOST, PORT, _PORTS = "127.0.0.1", 8460, 20  # tried from PORT on


def run(options: Namespace) -> None:

    if options.formats and options.output is None:
        raise UserError("--format is given and --output is not: nothing would be written")
    session = open_session(
        options.config_file,
        options.overrides,
        file=options.file,
        boxes=options.boxes,
        reviewed=options.reviewed,
    )
    if options.learn < 0:
        raise UserError(f"--learn is {options.learn}, expected a number of images, or 0")
    learner = Learner(options.config_file, options.overrides, session.store, options.learn)
    if options.output is None:
        with learner if options.learn else nullcontext():
            serve(
                session,
                options.port,
                browser=not options.no_browser,
                learning=learner.status if options.learn else lambda: None,
                label_studio=backend_token(session.store) if options.label_studio else "",
            )
    else:
        images = write_boxes(session, options.output, options.formats or ["coco"])
        print(f"boxes of {counted(len(images), 'image', 'images')}: {options.output}")
    session.store.close()
    next_step(
        "detector",
        "train",
        options.config_file,
        "DATASETS.BOXED",
        session.store.path,
        "OUTPUT_DIR",
        "runs/second",
    )


def write_boxes(session: Session, output: Path, formats: list[str]) -> list[ReviewImage]:
    """Write the boxes that were not rejected, reviewed or not, to a folder; return the images."""
    images = list(review_file.read(session.store.path))
    with folder_lock(output):
        outputs = OutputFolder(output, f"review {session.store.path.resolve()}")
        rows = [*encode_all(check_formats(formats), images, session.store.class_names, _folder(session))]
        outputs.check(name for name, _ in rows)
        for name, encoded in rows:
            outputs.write(name, encoded)
    return images


def _folder(session: Session) -> Path:
    """The folder that the names of the images are relative to."""
    number, name = next(iter(session.store.names().items()))
    return session.pictures.paths[number].parents[len(Path(name).parts) - 1]


def serve(
    session: Session,
    port: int | None,
    *,
    browser: bool,
    learning: Learning = lambda: None,
    label_studio: str = "",
) -> None:
    """Serve the page until Ctrl-C; `learning` and `label_studio` are of :func:`make_app`."""
    with _listen(port) as listener:
        port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
        app = make_app(
            *(session.store, session.pictures),
            title=session.title,
            token=token,
            port=port,
            learning=learning,
            label_studio=label_studio,
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        address = f"http://{HOST}:{port}/?token={token}"
        print(
            f"review of {session.title}: {address}\nCtrl-C stops it; everything is in {session.store.path}",
            flush=True,
        )
        if label_studio:
            print(
                f"for Label Studio (Settings, Model): http://{HOST}:{port}{PREFIX}{label_studio}", flush=True
            )
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    left = session.store.progress()
    print(f"{left['decided']} of {counted(left['total'], 'image', 'images')} reviewed: {session.store.path}")


def _listen(port: int | None) -> socket.socket:
    """A socket on this machine's own address, which no other machine reaches."""
    ports = range(PORT, PORT + _PORTS) if port is None else [port]
    for number in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
            listener.listen()  # before the address is printed: who opens it at once has to wait, no more
        except (OSError, OverflowError) as error:
            listener.close()
            reason = error
        else:
            return listener
    raise UserError(f"port {ports[0]} cannot be used ({reason}): name another one with --port")
