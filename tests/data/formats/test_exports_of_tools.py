"""What labeling tools write beside the plain cases."""

import base64
import json

import pytest
from files import write

from detector.data.datasets.coco import COCODataset
from detector.data.formats import review_import
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.errors import DataError

VALUE = {"x": 10.0, "y": 20.0, "width": 20.0, "height": 40.0, "rotation": 0}
SIZE = {"original_width": 80, "original_height": 60, "image_rotation": 0}


def region(label="cat", **changed):
    value = VALUE | {"rectanglelabels": [label]}
    return {"id": "r1", "type": "rectanglelabels", "value": value, **SIZE} | changed


def task(*annotations, **data):
    return {"id": 1, "data": data, "annotations": list(annotations)}


def read(folder, *tasks):
    (folder / "export.json").write_text(json.dumps(tasks))
    return review_import(folder / "export.json")


RESOLVED = base64.urlsafe_b64encode(b"s3://bucket/a b.jpg").decode()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("s3://bucket/photos/20240115-000.jpg", "20240115-000.jpg"),
        ("gs://bucket/0123abcd-a.jpg", "0123abcd-a.jpg"),
        ("azure-blob://container/50%25.jpg", "50%25.jpg"),
        ("https://host/p/0123abcd-a%20b.jpg?X-Amz-Signature=1", "0123abcd-a b.jpg"),
        ("/data/upload/3/0123abcd-Capture_d%C3%A9cran.jpg", "Capture_décran.jpg"),
        ("https://host/ls/data/upload/3/0123abcd-a.jpg", "a.jpg"),
        ("upload/3/0123abcd-a.jpg", "a.jpg"),
        ("/storage-data/uploaded/?filepath=upload/1/0123abcd-a.jpg", "a.jpg"),
        ("/data/local-files/?d=sub/0123abcd-a%20b.jpg", "sub/0123abcd-a b.jpg"),
        ("/data/local-files/?d=sub%5Ca.jpg", "sub/a.jpg"),
        (f"/tasks/7/resolve/?fileuri={RESOLVED}", "a b.jpg"),
        (f"https://host/tasks/7/presign/?fileuri={RESOLVED.rstrip('=')}", "a b.jpg"),
    ],
)
@pytest.mark.parametrize("key", ["image", "img"])
def test_addresses_of_label_studio(tmp_path, key, address, name):
    (image,) = read(tmp_path, task({"result": [region()]}, **{key: address}))
    assert image.name == name


def test_an_image_in_its_address_has_no_name(tmp_path):
    with pytest.raises(DataError, match=r"the address 'data:image/png;base64,.* holds the image itself"):
        read(tmp_path, task({"result": [region()]}, image="data:image/png;base64,iVBORw0KGgo="))


def test_folders_of_a_bucket_tell_two_pictures_of_one_name(tmp_path):
    names = [f"s3://bucket/all/{folder}/000.jpg" for folder in ("cats", "dogs")]
    found = read(tmp_path, *(task({"result": [region()]}, image=name) for name in names))
    assert [image.name for image in found] == ["cats/000.jpg", "dogs/000.jpg"]


@pytest.mark.parametrize(
    ("results", "labels"),
    [
        ([region(), {"type": "relation", "from_id": "r1", "to_id": "r2"}], ["cat"]),
        ([region(), {"id": "c", "type": "choices", "value": {"choices": ["blurry"]}}], ["cat"]),
        ([region(type="rectangle", value=VALUE), region(type="labels", value={"labels": ["dog"]})], ["dog"]),
        ([region(type="labels", value=VALUE | {"labels": ["dog"]})], ["dog"]),
    ],
)
def test_results_beside_boxes(tmp_path, results, labels):
    (image,) = read(tmp_path, task({"result": results}, image="a.jpg"))
    assert [box.label for box in image.boxes] == labels


@pytest.mark.parametrize("kind", ["brushlabels", "polygonlabels", "ellipselabels"])
def test_regions_of_other_shapes_are_named(tmp_path, kind):
    with pytest.raises(DataError, match=f"task 1 has the region 'r1' of type '{kind}'"):
        read(tmp_path, task({"result": [region(type=kind, value={kind: ["cat"]})]}, image="a.jpg"))


def test_of_several_annotators_the_ground_truth_counts_or_a_warning_tells(tmp_path):
    first, newer = {"result": [region()]}, {"result": [region("dog")], "updated_at": "2024"}
    (image,) = read(tmp_path, task(first | {"ground_truth": True}, newer, image="a.jpg"))
    assert image.boxes[0].label == "cat"
    with pytest.warns(UserWarning, match="1 task has several annotations that differ"):
        (image,) = read(tmp_path, task(first, newer, image="a.jpg"))
    assert image.boxes[0].label == "dog"


GIVEN = {"result": [region()]}
REJECTED, ACCEPTED = ({"reviews": [{"accepted": accepted}]} for accepted in (False, True))
LATER = [{"accepted": False, "created_at": "2024"}, {"accepted": True, "created_at": "2025"}]


@pytest.mark.parametrize(
    ("annotations", "more", "label", "warning"),
    [
        ([], {}, None, "no annotation, left out: submit an empty one where"),
        ([], {"predictions": [7]}, None, "no annotation, left out"),
        ([], {"predictions": [GIVEN]}, "cat", "the boxes are predictions of a model"),
        ([], {"drafts": [GIVEN]}, None, "a draft that nobody has submitted, left out"),
        ([GIVEN], {"drafts": [{"result": [region("dog")]}]}, "cat", ""),
        ([GIVEN | {"was_cancelled": True}], {}, None, "been skipped, left out"),
        ([GIVEN | {"was_cancelled": True}], {"predictions": [GIVEN]}, None, "been skipped, left out"),
        ([GIVEN | {"was_cancelled": True}, {"result": [region("dog")]}], {}, "dog", ""),
        ([GIVEN | REJECTED], {}, None, "only annotations that a reviewer rejected, left out"),
        ([GIVEN | REJECTED, {"result": [region("dog")]}], {}, "dog", ""),
        ([GIVEN | ACCEPTED, {"result": [region("dog")], "updated_at": "2030"}], {}, "cat", ""),
        ([GIVEN | {"reviews": LATER}], {}, "cat", ""),
        ([{"result": []}], {}, "", ""),
    ],
)
def test_what_a_person_of_label_studio_has_submitted(tmp_path, recwarn, annotations, more, label, warning):
    (tmp_path / "export.json").write_text(
        json.dumps([task(*annotations, image="a.jpg", width=80, height=60) | more])
    )
    images = review_import(tmp_path / "export.json", reviewed="all")
    assert ["".join(box.label for box in image.boxes) for image in images] == (
        [] if label is None else [label]
    )
    assert [warning in str(each.message) for each in recwarn.list] == ([True] if warning else [])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"image": "a.jpg", "id": 1, "label": []}, "export the project as JSON, not as JSON-MIN"),
        (
            task({"result": []}, video="/data/upload/1/0123abcd-a.mp4"),
            "task 1 has the video .*save its frames",
        ),
        (task(GIVEN, images=["a.jpg", "b.jpg"]), "task 1: `images` has 2 images: make a task of each"),
        (
            task(
                {"result": [region(value=VALUE | {"rotation": 30, "rectanglelabels": ["cat"]})]},
                image="a.jpg",
            ),
            r"task 1 \(a.jpg\) has the region 'r1', which is rotated .*turn it back in Label Studio",
        ),
    ],
)
def test_tasks_that_are_not_read_say_what_to_do(tmp_path, content, told):
    with pytest.raises(DataError, match=told):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "tool"),
    [
        ({"shapes": [], "imagePath": "a.png"}, r"LabelMe, .*labelme2coco FOLDER"),
        ({"name": "p", "assets": {"1": {"asset": {"name": "a.png"}, "regions": []}}}, "VoTT, .*Pascal VOC"),
        ({"asset": {"name": "a.png"}, "regions": [], "version": "2.1.0"}, "VoTT, .*Pascal VOC"),
        (
            {"project": {}, "config": {}, "attribute": {}, "file": {}, "metadata": {}, "view": {}},
            "VIA, .*COCO",
        ),
        ({"description": "", "tags": [], "size": {"height": 4}, "objects": []}, "Supervisely, .*COCO"),
        ({"version": "2.0", "item": {"name": "a.png"}, "annotations": []}, "V7 Darwin, .*COCO"),
        ({"info": {}, "categories": {}, "items": []}, "Datumaro, .*coco_instances"),
        ([{"ID": "x", "Labeled Data": "a.png", "Label": {"objects": []}}], "Labelbox, .*labelformat"),
        ([{"name": "a.png", "labels": [{"box2d": {}}]}], "Scalabel or BDD100K, .*COCO"),
        ({"a.png321": {"filename": "a.png", "regions": []}}, r"VIA, .*Annotations \(COCO format\)"),
        ([{"image": "a.png", "annotations": []}], "CreateML, .* choose PascalVOC"),
        ([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}], "results of COCO"),
        ([{"data": {"image": "a.png"}, "completions": []}], "rename the key to annotations"),
    ],
)
def test_files_of_other_tools_are_named(tmp_path, content, tool):
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=tool):
        review_import(tmp_path / "a.json")


CVAT = '<annotations><image id="0" name="{}" width="80" height="60" task_id="0">{}</image></annotations>'
BOX = '<box label="cat" source="{}" xtl="1" ytl="2" xbr="30" ybr="40"/>'


@pytest.mark.parametrize(("source", "reviewed"), [("manual", 1), ("semi-auto", 1), ("auto", 0), ("file", 0)])
def test_which_boxes_of_cvat_a_person_made(tmp_path, source, reviewed):
    boxes = BOX.format("manual") + BOX.format(source)
    (tmp_path / "a.xml").write_text(CVAT.format("sub\\frame_000000", boxes))
    if reviewed:
        (image,) = review_import(tmp_path / "a.xml")
    else:
        with pytest.warns(UserWarning, match="1 box is left out"):
            (image,) = review_import(tmp_path / "a.xml")
    assert (image.name, len(image.true_boxes)) == ("sub/frame_000000", 1 + reviewed)


@pytest.mark.parametrize(
    ("file", "subset", "name"),
    [
        ("frame_000000.PNG", "", "frame_000000.PNG"),
        ("frame_000000.jpg", "", "frame_000000.jpg"),
        ("Train/frame_000000.PNG", "Train", "Train/frame_000000.PNG"),
        ("frame_000000.png", "Train", "frame_000000.png"),
        ("other.png", "Train", "frame_000000"),
    ],
)
def test_the_file_of_a_frame_of_cvat(tmp_path, file, subset, name):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    text = CVAT.format("frame_000000", BOX.format("manual"))
    (tmp_path / "a.xml").write_text(text.replace("task_id", f'subset="{subset}" task_id'))
    (image,) = review_import(tmp_path / "a.xml", images=tmp_path)
    assert image.name == name


def of_two_tasks(*subsets):
    image = '<image id="0" name="a.jpg" subset="{}" width="80" height="60" task_id="{}">{}</image>'
    images = (image.format(subset, i, BOX.format("manual")) for i, subset in enumerate(subsets, start=1))
    return f"<annotations>{''.join(images)}</annotations>"


def test_subsets_of_cvat_are_folders(tmp_path):
    for subset in ("Train", "Test"):
        (tmp_path / subset).mkdir()
        (tmp_path / subset / "a.jpg").touch()
    (tmp_path / "a.xml").write_text(of_two_tasks("Train", "Test"))
    images = review_import(tmp_path / "a.xml", images=tmp_path)
    assert [image.name for image in images] == ["Train/a.jpg", "Test/a.jpg"]


@pytest.mark.parametrize(
    ("subsets", "told"), [(("", ""), "1, 2:"), (("Train", "Test"), r"1 \(subset Train\), 2 \(subset Test\):")]
)
def test_one_name_in_two_tasks_of_cvat_is_told(tmp_path, subsets, told):
    (tmp_path / "a.xml").write_text(of_two_tasks(*subsets))
    with pytest.raises(DataError, match=rf"1 name is in several tasks .* 'a\.jpg' in the tasks {told}"):
        review_import(tmp_path / "a.xml")


def test_sizes_that_no_reader_takes_back(tmp_path):
    (tmp_path / "a.xml").write_text(CVAT.format("a.jpg", BOX).replace('"80"', f'"{2**63}"'))
    with pytest.raises(DataError, match="expected numbers of pixels from 1 to"):
        review_import(tmp_path / "a.xml", reviewed="all")


def test_xml_of_absurd_depth_is_refused_quickly(tmp_path):
    (tmp_path / "a.xml").write_text(CVAT.format("a.jpg", "<box>" * 300_000 + "</box>" * 300_000))
    with pytest.raises(DataError, match=r"a\.xml: it has elements within elements, more than 100 deep"):
        review_import(tmp_path / "a.xml")


def found_in(pictures, labels=None):
    """The corners of the boxes of each picture."""
    return {each.name: [box.box for box in each.boxes] for each in find_tags(pictures, labels)[0]}


LINE, MIDDLE = "0 .5 .5 .5 .5\n", (20, 15, 60, 45)
OBJECT = (
    "<object><name>cat</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>60</xmax><ymax>45</ymax></bndbox>"
    "</object>"
)


def voc(file_name, more="", first=1):
    size = "<size><width>80</width><height>60</height></size>"
    thing = OBJECT.format(20 + first, 15 + first)
    return f"<annotation>{more}<filename>{file_name}</filename>{size}{thing}</annotation>"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("../../../home/me/.local/share/label-studio/media/upload/1/0123abcd-a_b.jpg", "a b.jpg"),
        ("/data/upload/1/0123abcd-gr%C3%BCn.jpg", "grün.jpg"),
        ("/data/local-files/?d=photos/sub/gr%C3%BCn.jpg", "sub/grün.jpg"),
        ("../../srv/photos/sub/grün.jpg", "sub/grün.jpg"),
        ("images/a b.jpg", "a b.jpg"),
        ("s3://bucket/sub/grün.jpg", "sub/grün.jpg"),
    ],
)
@pytest.mark.parametrize("size", [{"width": 80, "height": 60}, {"width": None, "height": None}])
@pytest.mark.parametrize("contributor", ["Label Studio", "Label Studio Converter"])
def test_addresses_in_coco_of_label_studio(tmp_path, address, name, size, contributor):
    content = {
        "info": {"contributor": contributor},
        "images": [{"id": 0, "file_name": address, **size}],
        "categories": [{"id": 0, "name": "cat"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [20, 15, 40, 30]}],
    }
    write(tmp_path, {f"photos/{name}": "", "result.json": content})
    assert found_in(tmp_path / "photos", tmp_path / "result.json") == {name: [MIDDLE]}


@pytest.mark.parametrize("written", ["gr%C3%BCn", "0123abcd-gr%C3%BCn"])
@pytest.mark.parametrize("name", ["grün.jpg", "sub/grün.jpg"])
def test_files_of_boxes_that_label_studio_names_by_addresses(tmp_path, name, written):
    write(tmp_path, {f"photos/{name}": "", "photos/other.jpg": ""})
    by_tool = "<owner><name>Label Studio</name></owner>"
    write(tmp_path / "voc/Annotations", {f"{written}.xml": voc(f"{written}.jpg", by_tool, first=0)})
    write(tmp_path / "yolo", {f"labels/{written}.txt": LINE, "classes.txt": "cat\n"})
    write(tmp_path / "yolo", {"notes.json": {"categories": [{"id": 0, "name": "cat"}]}})
    with pytest.warns(UserWarning, match=r"1 picture is left out.*other\.jpg"):
        assert found_in(tmp_path / "photos", tmp_path / "voc") == {name: [MIDDLE]}
    with pytest.warns(UserWarning, match=r"1 picture is left out.*other\.jpg"):
        assert found_in(tmp_path / "photos", tmp_path / "yolo") == {name: [MIDDLE]}


def test_a_table_of_label_studio_with_regions_is_named(tmp_path):
    cell = json.dumps([VALUE | SIZE | {"rectanglelabels": ["cat"]}]).replace('"', '""')
    write(tmp_path, {"a.jpg": "", "result.csv": f'"id","image","label"\n1,"a.jpg","{cell}"\n'})
    with pytest.raises(DataError, match=r"result\.csv is a table of Label Studio .* export .* as JSON"):
        find_tags(tmp_path, None)


def test_a_cell_may_be_longer_than_the_name_of_a_file(tmp_path):
    caption = "a cat sits " * 40
    write(
        tmp_path,
        {
            "a.jpg": "",
            "b.jpg": "",
            "t.csv": f"file,caption,label\na.jpg,{caption},cat\nb.jpg,{caption},dog\n",
        },
    )
    assert {each.name: each.labels for each in find_tags(tmp_path, None)[0]} == {
        "a.jpg": ("cat",),
        "b.jpg": ("dog",),
    }


def test_folders_of_fiftyone(tmp_path):
    pictures = {"data/a.jpg": "", "data/sub/a.jpg": ""}
    write(tmp_path / "voc", pictures | {"labels/a.xml": voc("a.jpg"), "labels/sub/a.xml": voc("sub/a.jpg")})
    assert found_in(tmp_path / "voc") == {"a.jpg": [MIDDLE], "sub/a.jpg": [MIDDLE]}
    texts = {"data/a.txt": LINE, "data/sub/a.txt": "", "obj.names": "cat\n"}
    write(tmp_path / "yolo", pictures | texts | {"images.txt": "data/a.jpg\ndata/sub/a.jpg\n"})
    assert found_in(tmp_path / "yolo") == {"a.jpg": [MIDDLE], "sub/a.jpg": []}


def test_lists_that_labelimg_writes_into_each_folder(tmp_path):
    pictures = {"a.jpg": "", "sub/b.jpg": "", "a.txt": LINE, "sub/b.txt": "1 .5 .5 .5 .5\n"}
    write(tmp_path, pictures | {"classes.txt": "cat\n", "sub/classes.txt": "cat\ndog\n"})
    assert {each.name: each.labels for each in find_tags(tmp_path, None)[0]} == {
        "a.jpg": ("cat",),
        "sub/b.jpg": ("dog",),
    }
    write(tmp_path, {"sub/classes.txt": "dog\ncat\n"})
    with pytest.raises(DataError, match=r"sub/classes\.txt has 'dog' as number 0, and another .* has 'cat'"):
        find_tags(tmp_path, None)


def coco(*boxes, **more):
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 80, "height": 60, **more}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": 1, "bbox": [*box], **MEASURED}
            for number, box in enumerate(boxes)
        ],
    }


MEASURED = {"area": 9, "iscrowd": 0}
SHARES_HINT = (
    voc("a.jpg")
    .replace(">21<", ">.2<")
    .replace(">16<", ">.2<")
    .replace(">60<", ">.9<")
    .replace(">45<", ">1<")
)
ONE_OF_TWO = (
    '<?xml version="1.0"?><annotations><image id="0" name="a.jpg" width="80" height="60"/></annotations>'
)
CORNERS = [(40, 30, 79, 59), (50, 40, 70, 55), (30, 20, 60, 59)]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"c.json": coco((0.1, 0.2, 0.5, 0.5))}, "shares of the image, expected pixels"),
        ({"a.xml": SHARES_HINT}, "shares of the image, expected pixels"),
        (
            {"c.json": coco(*CORNERS)},
            r"3 of 3 boxes .* such as the bbox \[40.* x1, y1, x2, y2 all are inside",
        ),
        ({"a.txt": LINE, "data.yaml": "nc: 2\nnames: [cat]"}, "has nc: 2 and 1 names"),
        ({"a.txt": LINE, "obj.names": "cat", "classes.txt": "dog"}, "classes.txt has 'dog' as number 0"),
        ({"a.txt": "0 .5 .5 .2 .2 .4 .4 2 .6 .6 2", "obj.names": "cat"}, r"a\.txt, line 1 is .* outline"),
        (
            {"1.xml": ONE_OF_TWO, "2.xml": ONE_OF_TWO},
            r"several files that may be the labels: 1\.xml, 2\.xml; --labels",
        ),
        ({"a.ndjson": "{}"}, "NDJSON, .* Ultralytics and Labelbox .* export YOLO"),
        ({"m.json": [{"filename": "a.jpg", "ann": {"bboxes": [[1, 1, 9, 9]]}}]}, "MMDetection"),
        ({"m.json": [{"file_name": "a.jpg", "annotations": [{"bbox": [1, 1, 9, 9]}]}]}, "detectron2"),
        ({"m.json": {"LabelName": "/m/0bl9f", "Subcategory": []}}, "Open Images"),
    ],
)
def test_what_would_be_misread_is_an_error(tmp_path, files, told):
    write(tmp_path, {"a.jpg": ""} | files)
    with pytest.raises(DataError, match=told):
        find_tags(tmp_path, None)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a.txt": "0 .5 .5 .5 .5 .31", "obj.names": "cat"}, r"1 box has a score, from 0\.31 to 0\.31, so"),
        ({"c.json": coco((10, 20, 30, 30), neg_category_ids=[1])}, "as in LVIS, .* count as absent"),
    ],
)
def test_what_may_be_wrong_is_told(tmp_path, files, told):
    write(tmp_path, {"a.jpg": ""} | files)
    with pytest.warns(UserWarning, match=told):
        assert len(find_tags(tmp_path, None)[0][0].boxes) == 1


def test_a_class_that_open_images_denies_is_not_shown(tmp_path):
    table = "ImageID,Source,LabelName,Confidence\na,verification,/m/01,1\na,verification,/m/02,0\n"
    write(tmp_path, {"a.jpg": "", "b.jpg": "", "t.csv": f"{table}b,verification,/m/02,1\n"})
    with pytest.warns(UserWarning, match="1 line with 0 in 'Confidence'"):
        found = {each.name: each.labels for each in find_tags(tmp_path, None)[0]}
    assert found == {"a.jpg": ("/m/01",), "b.jpg": ("/m/02",)}


@pytest.mark.parametrize("there", ["sub/a.jpg", "sub\\a.jpg"])
def test_a_backslash_parts_folders_unless_it_is_part_of_a_name(tmp_path, there):
    write(tmp_path, {there: ""})
    write(tmp_path, {"coco.json": coco((20, 15, 40, 30)) | {"images": [IMAGE | {"file_name": "sub\\a.jpg"}]}})
    box = '<box label="cat" xtl="20" ytl="15" xbr="60" ybr="45"/>'
    image = f'<image id="0" name="sub\\a.jpg" width="80" height="60">{box}</image>'
    write(tmp_path, {"cvat.xml": f"<annotations>{image}</annotations>"})
    for labels in ("coco.json", "cvat.xml"):
        assert found_in(tmp_path, tmp_path / labels) == {there: [MIDDLE]}
    dataset = COCODataset(tmp_path, "", annotations="coco.json", images=".")
    assert dataset.image_path(0) == tmp_path / there


IMAGE = {"id": 1, "width": 80, "height": 60}


def test_blanks_around_the_name_of_a_folder_are_no_other_class(tmp_path):
    write(tmp_path, {"cat /a.jpg": "", "cat/b.jpg": "", "dog/c.jpg": ""})
    assert {each.labels for each in find_tags(tmp_path, None)[0]} == {("cat",), ("dog",)}


def test_a_comma_is_part_of_the_class_of_a_box(tmp_path):
    rows = 'a.jpg,20,15,60,45,"tench, Tinca"\na.jpg,1,1,9,9,cat\nb.jpg,20,15,60,45,"cat, dog"\n'
    write(tmp_path, {"a.jpg": "", "b.jpg": "", "t.csv": f"file,xmin,ymin,xmax,ymax,label\n{rows}"})
    found = {each.name: [box.label for box in each.boxes] for each in find_tags(tmp_path, None)[0]}
    assert found == {"a.jpg": ["tench, Tinca", "cat"], "b.jpg": ["cat, dog"]}
