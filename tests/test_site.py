"""`make docs`: mistakes stop it, and what it builds can be read without a network, from the disk."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import open_browser

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parents[1]


def build(config: Path, site: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT / "mkdocs.yml", folder)
    assert result.returncode == 0, result.stderr
    return folder


class Page(HTMLParser):
    """The ids of a page, what it links to and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") != "canonical" and "href" in values:
            self.loaded.append(values["href"])
        if "src" in values:
            self.loaded.append(values["src"])


def test_a_dead_link_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[elsewhere](elsewhere.md)")
    shutil.copytree(ROOT / "docs/make", tmp_path / "docs/make")
    lines = (ROOT / "mkdocs.yml").read_text().splitlines(keepends=True)
    start, end = lines.index("nav:\n"), lines.index("validation:\n")  # the other pages are not there
    (tmp_path / "mkdocs.yml").write_text("".join([*lines[:start], *lines[end:]]))
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode != 0
    assert "elsewhere.md" in result.stderr
    (recipe,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line)
    assert "--quiet" not in recipe  # mkdocs counts no warnings then


def test_all_that_a_page_loads_or_links_to_is_there(site: Path) -> None:
    files = sorted(site.rglob("*.html"))
    pages = {file: Page(file) for file in files}
    assert len(files) > 20
    for file, page in pages.items():
        if file.name == "404.html":  # a server sends it for any address; its links begin with /
            continue
        for address in page.loaded:
            parts = urlsplit(address)
            assert not parts.scheme or parts.scheme == "data", f"{file.name} loads {address}"
            assert (file.parent / unquote(parts.path)).is_file(), f"{file.name}: no {address}"
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_file(), f"{file.name}: no {address}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{file.name}: no {address}"


def test_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.css"):
        text = file.read_text()
        assert "url(http" not in text, file
        assert "url(//" not in text, file
        assert "@import" not in text, file


def test_a_page_on_the_disk_searches_without_a_network(site: Path) -> None:
    with open_browser() as browser:
        from playwright.sync_api import TimeoutError as TooLate

        page = browser.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        result = None
        for _ in range(9):  # on a busy machine the search sometimes never gets ready: load the page again
            page.goto((site / "index.html").as_uri())
            page.fill("[data-md-component=search-query]", "roi_align")
            with suppress(TooLate):
                result = page.wait_for_selector(".md-search-result__link", state="attached", timeout=20_000)
                break
        assert result is not None
        assert ".html" in result.get_attribute("href")
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
