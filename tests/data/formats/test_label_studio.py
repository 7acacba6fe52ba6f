"""The round trip through a running Label Studio; docs/labeling.md has the commands."""

import json
import os
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from detector.data.formats import ReviewImage, encode_review, label_studio, review_import
from detector.data.labeled_box import LabeledBox

URL, TOKEN = os.environ.get("LABEL_STUDIO_URL", ""), os.environ.get("LABEL_STUDIO_TOKEN", "")
ROOT = os.environ.get("LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT", "")

pytestmark = [
    pytest.mark.label_studio,
    pytest.mark.skipif(not (URL and TOKEN and ROOT), reason="needs a running Label Studio"),
]


def fetch(path: str, content: object = None, method: str | None = None) -> bytes:
    headers = {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def call(path: str, content: object = None) -> Any:
    return json.loads(fetch(path, content))


def test_corrections_in_label_studio_come_back(tmp_path: Path) -> None:
    folder = Path(ROOT, "detector-test")
    folder.mkdir()
    images = [
        ReviewImage(
            f"{name}.png",
            (60, 80),
            (
                LabeledBox("cat", (1.5, 2.0, 40.0, 50.25), 0.5),
                LabeledBox("dog", (10.0, 12.0, 30.0, 20.0), 0.25),
            ),
        )
        for name in "abc"
    ]
    files = dict(encode_review("label-studio", images, ["cat", "dog"], folder=folder.name))
    for image in images:
        Image.new("RGB", (80, 60)).save(folder / image.name)
    config = files["label_config.xml"].decode()
    project = call("/api/projects", {"title": "detector", "label_config": config})["id"]
    try:
        call("/api/storages/localfiles", {"project": project, "path": str(folder), "use_blob_urls": True})
        call(f"/api/projects/{project}/import", json.loads(files["tasks.json"]))
        tasks = call(f"/api/tasks?project={project}&fields=all")["tasks"]
        assert fetch(tasks[0]["data"]["image"]).startswith(b"\x89PNG")
        for task in tasks[:2]:  # moves a box of each of two images
            result = task["predictions"][0]["result"]
            result[0]["value"] |= {"x": 25.0, "width": 50.0}
            call(f"/api/tasks/{task['id']}/annotations", {"result": result})
        content = fetch(f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true")
    finally:
        fetch(f"/api/projects/{project}", method="DELETE")
        shutil.rmtree(folder)
    export = tmp_path / "export.json"
    export.write_bytes(content)
    found = review_import(export)
    assert [(image.name, image.reviewed) for image in found] == [
        ("a.png", "all"),
        ("b.png", "all"),
        ("c.png", "none"),
    ]
    for image in found[:2]:
        moved, kept = image.boxes
        assert (moved.label, kept.label) == ("cat", "dog")
        assert moved.box == pytest.approx((20.0, 2.0, 60.0, 50.25))
        assert kept.box == pytest.approx((10.0, 12.0, 30.0, 20.0))


def test_keypoints_of_label_studio_are_points_in_pixels() -> None:
    interface = """
        <View>
          <Image name="image" value="$image"/>
          <KeyPointLabels name="label" toName="image"><Label value="dog"/></KeyPointLabels>
        </View>"""
    project = call("/api/projects", {"title": "points", "label_config": interface})["id"]
    try:
        images = [{"data": {"image": f"/data/local-files/?d=photos/{name}.png"}} for name in "ab"]
        call(f"/api/projects/{project}/import", images)
        task = call(f"/api/tasks?project={project}&fields=all")["tasks"][0]
        region = {
            "type": "keypointlabels",
            "from_name": "label",
            "to_name": "image",
            "original_width": 80,
            "original_height": 60,
            "value": {"x": 25.0, "y": 50.0, "width": 0.5, "keypointlabels": ["dog"]},
        }
        call(f"/api/tasks/{task['id']}/annotations", {"result": [region]})
        content = fetch(f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true")
    finally:
        fetch(f"/api/projects/{project}", method="DELETE")
    assert dict(label_studio.read_points(json.loads(content))) == {
        "photos/a.png": [{"label": "dog", "point": [20.0, 30.0]}],
        "photos/b.png": [],
    }
