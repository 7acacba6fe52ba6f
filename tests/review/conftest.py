"""A review of three pictures, and its server."""

from pathlib import Path

import pytest
from review_cases import PORT, TOKEN, draw_pictures, make_store

from detector.review.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path)


@pytest.fixture
def app(store: Store, tmp_path: Path):
    pytest.importorskip("starlette", reason="needs starlette")
    from detector.review.pictures import Pictures
    from detector.review.server import make_app

    pictures = Pictures(draw_pictures(tmp_path), upright=True)
    return make_app(store, pictures, title="mine", token=TOKEN, port=PORT, label_studio="studio")
