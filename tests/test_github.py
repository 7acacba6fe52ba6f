"""What GitHub reads: workflows that call what is tested here, forms for `detector env`, and the citation."""

import re
from pathlib import Path

import yaml

import detector

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def test_workflows_call_what_runs_without_github_and_say_that_they_have_not_run() -> None:
    for path in (GITHUB / "workflows").glob("*.yml"):
        assert "has not run on GitHub yet" in " ".join(path.read_text().replace("#", "").split())
        assert read(path)["permissions"] == {"contents": "read"}
    (job,) = read(GITHUB / "workflows/ci.yml")["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    targets = re.findall(r"\bmake (\w+)", (GITHUB / "workflows/wheels.yml").read_text())
    assert set(targets) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))


def test_the_release_has_every_file_of_the_other_jobs() -> None:
    jobs = read(GITHUB / "workflows/wheels.yml")["jobs"]
    assert set(jobs["checksums"]["needs"]) == set(jobs) - {"checksums"}
    built = {f"wheel-{row['name']}" for row in jobs["wheel"]["strategy"]["matrix"]["include"]}
    assert {row["wheel"] for row in jobs["try"]["strategy"]["matrix"]["include"]} <= built


def test_forms_ask_for_the_environment() -> None:
    bug = read(GITHUB / "ISSUE_TEMPLATE/bug.yml")
    (field,) = (field for field in bug["body"] if field["id"] == "env")
    assert "`detector env`" in field["attributes"]["label"]
    assert field["validations"]["required"]


def test_the_citation_is_of_this_version_and_of_the_papers_of_the_docs() -> None:
    citation, page = read(ROOT / "CITATION.cff"), (ROOT / "docs/citing.md").read_text()
    assert citation["version"] == detector.__version__
    assert (
        citation["license"] == re.search(r'^license = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    )
    for paper in citation["references"]:
        number = paper["url"].rpartition("/")[2]
        assert number in (ROOT / "README.md").read_text()
        assert all(author["family-names"] in page for author in paper["authors"])


def test_links_between_these_pages_exist() -> None:
    for page in GITHUB.glob("*.md"):
        for target in re.findall(r"\]\((?![a-z]+:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: no {target}"
