"""`init` on unfamiliar manifests: what it proposes, and that the proposal loads and maps."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging_tests.cli.command import Finished, run_command
from dataset_packaging_tests.cli.real_photos import rewrite_paths, write_wide_addresses, write_windows_list
from dataset_packaging_tests.cli.unfamiliar import (
    draw_image,
    write_coco_captions,
    write_img2dataset,
    write_laion,
    write_lines,
    write_scraped,
)


def _sources(dataset: DatasetConfig) -> dict[str, tuple[str, ...]]:
    return {column: field.from_ for column, field in dataset.mapping.direct.items()}


def _init(manifest: Path, cwd: Path, *options: str) -> tuple[Finished, DatasetConfig]:
    ended = run_command("init", manifest, "-o", "starter.yaml", *options, cwd=cwd)
    assert ended.stderr == ""
    return ended, load_dataset(cwd / "starter.yaml", {})


def test_laion_with_downloaded_files(tmp_path: Path):
    ended, dataset = _init(write_laion(tmp_path, with_paths=True), tmp_path)
    assert ended.exit_code == 0
    assert dataset.name == "laion2b"
    assert _sources(dataset) == {
        "image_key": ("SAMPLE_ID",),
        "s3_image_path": ("image_path",),
        "width": ("WIDTH",),
        "height": ("HEIGHT",),
        "full_description": ("TEXT",),
        "aesthetic_score": ("AESTHETIC_SCORE",),
    }
    assert dataset.mapping.direct["full_description"].cast == "list_string"
    assert dataset.mapping.base_uri == f"file://{tmp_path}/downloads/"
    assert dataset.images.max_rejected_fraction == 0.01


def test_web_addresses_alone_are_a_finding(tmp_path: Path):
    ended, dataset = _init(write_laion(tmp_path, with_paths=False), tmp_path)
    assert ended.exit_code == 1
    assert "URL holds web addresses, which are not fetched" in ended.stdout
    assert _sources(dataset)["s3_image_path"] == ("URL",)
    assert dataset.images.max_rejected_fraction == 0.01


def test_img2dataset_output(tmp_path: Path):
    ended, dataset = _init(write_img2dataset(tmp_path / "crawl"), tmp_path)
    assert ended.exit_code == 0
    assert dataset.name == "crawl"
    assert _sources(dataset) == {
        "image_key": ("key",),
        "s3_image_path": ("image_path",),
        "width": ("width",),
        "height": ("height",),
        "full_description": ("caption",),
        "sha256": ("sha256",),
    }
    assert dataset.mapping.drop == ("clip_embedding",)
    assert dataset.mapping.base_uri == f"file://{tmp_path}/crawl/"
    assert "the manifest's md5 is not that of 8 of 8 sampled images" in ended.stdout


def test_coco_captions_keep_every_caption(tmp_path: Path):
    ended, dataset = _init(write_coco_captions(tmp_path), tmp_path)
    assert ended.exit_code == 0
    assert _sources(dataset)["image_key"] == ("id",)
    assert _sources(dataset)["s3_image_path"] == ("file_name",)
    assert dataset.mapping.base_uri == f"file://{tmp_path}/train2017/"
    assert "file_name repeats: 12 images for 60 rows" in ended.stdout


def test_a_scraped_manifest_with_null_paths(tmp_path: Path):
    ended, dataset = _init(write_scraped(tmp_path), tmp_path)
    assert ended.exit_code == 0
    assert dataset.name == "crawl"
    assert _sources(dataset) == {
        "image_key": ("_id",),
        "s3_image_path": ("s3_path", "image_uri"),
        "full_description": ("meta.alt",),
        "short_description": ("meta.title",),
        "keywords": ("tags",),
        "aesthetic_score": ("score.aesthetic",),
        "is_aigc": ("aiGenerated",),
    }
    assert dataset.mapping.direct["aesthetic_score"].cast == "float"
    assert dataset.mapping.direct["is_aigc"].cast == "bool"
    assert dataset.mapping.drop == ("html",)
    assert dataset.mapping.base_uri is None
    assert dataset.sidecar.schema_extensions[0].type == "struct<score: double, pass: bool>"
    # 1 of 51 rows has no path, 1 is broken: the limit leaves room for them.
    assert 2 / 51 < dataset.images.max_rejected_fraction <= 0.05
    assert "1 of 51 sampled lines are not one JSON object each" in ended.stdout


def test_the_evidence_stands_in_comments_that_fit_the_page(tmp_path: Path):
    write_scraped(tmp_path)
    _init(tmp_path / "crawl-2026-01.jsonl", tmp_path)
    lines = (tmp_path / "starter.yaml").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 120
    assert "    # meta.alt: text in 98.0 % of the rows" not in lines
    assert any(line.startswith("    # meta.alt: text in all of the rows, mean 11 characters") for line in lines)
    assert any(line.startswith("# thumbnail_path: ") for line in lines)


def test_only_one_size_of_a_picture_is_believed(tmp_path: Path):
    """Sizes of another rendition are worse than none."""
    manifest = write_img2dataset(tmp_path)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    write_lines(manifest, [{**row, "width": 9999} for row in rows])
    ended, dataset = _init(manifest, tmp_path)
    assert dataset.images.dimensions == "probe"
    assert "8 of 8 sampled images have another size than the manifest says" in ended.stdout


def test_a_key_that_repeats_is_no_key(tmp_path: Path):
    rows = [{"id": number % 10, "s3_path": f"s3://bucket/{number}.jpg"} for number in range(100)]
    _, dataset = _init(write_lines(tmp_path / "photos.jsonl", rows), tmp_path, "--no-fetch")
    assert "image_key" not in _sources(dataset)


def test_a_literal_dotted_name_is_not_mapped_as_a_nested_one(tmp_path: Path):
    rows = [{"s3_path": f"s3://bucket/{number}.jpg", "meta.caption": "text"} for number in range(5)]
    _, dataset = _init(write_lines(tmp_path / "photos.jsonl", rows), tmp_path, "--no-fetch")
    assert "full_description" not in _sources(dataset)


@pytest.mark.parametrize(
    "name", ["on", "null", "1e6", "a: b", "#x", "[x]", "ü", "a'b\"c", "x\u2028y", "-", "*x", "&a", "0777"]
)
def test_any_field_name_can_be_dropped_by_name(name: str, tmp_path: Path):
    """DAG-01."""
    rows = [{"s3_path": f"s3://bucket/{number}.jpg", name: "z" * 5000} for number in range(5)]
    _, dataset = _init(write_lines(tmp_path / "photos.jsonl", rows), tmp_path, "--no-fetch")
    assert dataset.mapping.drop == (name,)
    assert yaml.safe_load((tmp_path / "starter.yaml").read_text(encoding="utf-8"))["mapping"]["drop"] == [name]


def test_values_from_the_data_cannot_leave_their_comment(tmp_path: Path):
    rows = [{"s3_path": f"s3://bucket/{n}.jpg", "title": f"x\nname: evil\r\u0085\u2028{n}\x00"} for n in range(5)]
    _, dataset = _init(write_lines(tmp_path / "photos.jsonl", rows), tmp_path, "--no-fetch")
    assert dataset.name == "photos"


def test_compressed_manifests_and_globs(tmp_path: Path):
    """MAN-08: told by content."""
    for part in range(3):
        lines = [json.dumps({"id": f"{part}-{n}", "s3_path": f"s3://bucket/{part}/{n}.jpg"}) for n in range(10)]
        (tmp_path / f"entry-{part}.jsonl").write_bytes(gzip.compress("\n".join(lines).encode()))
    ended = run_command("init", "entry-*.jsonl", "--no-fetch", "--json", "--name", "sample", cwd=tmp_path)
    assert ended.exit_code == 0
    assert ended.json["sampled_rows"] == 30
    assert load_dataset(tmp_path / "sample.yaml", {}).manifest == (f"file://{tmp_path}/entry-*.jsonl",)


def test_a_long_manifest_is_sampled_from_all_its_parts(tmp_path: Path):
    padding = "p" * 1000
    rows = [
        {"s3_path": f"s3://bucket/{n}.jpg", "pad": padding, **({"late": "x"} if n > 17_000 else {})}
        for n in range(20_000)
    ]
    ended = run_command(
        "init", write_lines(tmp_path / "long.jsonl", rows), "--no-fetch", "--json", "--sample-rows", "800", cwd=tmp_path
    )
    assert 700 <= ended.json["sampled_rows"] <= 800
    assert "late" in ended.json["kept"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "empty"),
        ("[\n {\"a\": 1},\n {\"a\": 2}\n]\n", "one JSON document"),
        (json.dumps({"images": [{"id": n} for n in range(500)], "annotations": [{"id": 1}]}), "images, annotations"),
        ("id,path\n1,a.jpg\n", "polars.scan_csv(FILE).sink_ndjson(NEW)"),
        ('"id"\t"path"\n"1"\t"a.jpg"\n', "polars.scan_csv(FILE, separator='\\t').sink_ndjson(NEW)"),
        ("PAR1\x15\x04\x15", "polars.scan_parquet(FILE).sink_ndjson(NEW)"),
        ("PK\x03\x04 and so on", "zip archive"),
        ('{\n "a": 1\n}\n{\n "a": 2\n}\n', "jq -c ."),
        ('"a.jpg"\n"b.jpg"\n', "no objects"),
        ("a.jpg\nb.jpg\n", "does not look like JSON lines"),
    ],
    ids=["empty", "array", "coco", "csv", "tsv", "parquet", "zip", "pretty", "texts", "names"],
)  # fmt: skip
def test_what_is_not_json_lines_is_one_line_and_2(content: str, told: str, tmp_path: Path):
    (tmp_path / "odd.jsonl").write_text(content)
    ended = run_command("init", "odd.jsonl", cwd=tmp_path)
    assert ended.exit_code == 2
    assert told in ended.error_line
    assert [path.name for path in tmp_path.iterdir()] == ["odd.jsonl"]


def test_a_missing_manifest_is_one_line_and_2(tmp_path: Path):
    ended = run_command("init", "absent-*.jsonl", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "absent-*.jsonl" in ended.error_line


def test_an_existing_yaml_is_not_replaced(tmp_path: Path):
    manifest = write_laion(tmp_path, with_paths=True)
    (tmp_path / "laion2b.yaml").write_text("mine")
    ended = run_command("init", manifest, cwd=tmp_path)
    assert ended.exit_code == 2
    assert "laion2b.yaml exists" in ended.error_line
    assert (tmp_path / "laion2b.yaml").read_text() == "mine"
    assert run_command("init", manifest, "--force", cwd=tmp_path).exit_code == 0
    assert load_dataset(tmp_path / "laion2b.yaml", {}).name == "laion2b"


def test_the_yaml_can_go_to_stdout(tmp_path: Path):
    ended = run_command("init", write_laion(tmp_path, with_paths=True), "-o", "-", cwd=tmp_path)
    assert yaml.safe_load(ended.stdout)["name"] == "laion2b"
    assert [path.suffix for path in tmp_path.iterdir() if path.is_file()] == [".jsonl"]


def test_a_manifest_on_s3(s3_bucket: str, s3_server, s3_environ, tmp_path: Path):
    manifest = write_coco_captions(tmp_path)
    client = s3_server.client()
    client.upload_file(str(manifest), s3_bucket, "coco/captions_train2017.jsonl")
    for image in (tmp_path / "train2017").iterdir():
        client.upload_file(str(image), s3_bucket, f"coco/train2017/{image.name}")
    (tmp_path / "new").mkdir()
    ended = run_command(
        "init", f"s3://{s3_bucket}/coco/captions_train2017.jsonl", "--s3-endpoint", s3_server.endpoint,
        "--s3-region", s3_server.region, "-o", "coco.yaml", cwd=tmp_path / "new",
    )  # fmt: skip
    assert (ended.exit_code, ended.stderr) == (0, "")
    dataset = load_dataset(tmp_path / "new" / "coco.yaml", {})
    assert dataset.mapping.base_uri == f"s3://{s3_bucket}/coco/train2017/"
    assert dataset.output_prefix == f"s3://{s3_bucket}/coco/train2017_parquet"
    assert dataset.s3.endpoint == s3_server.endpoint


REWRITING = "rewrite the manifest, see 'Paths that are spelled otherwise' in docs/cli.md"


def test_a_list_from_windows_says_what_to_rewrite(tmp_path: Path):
    manifest = write_windows_list(tmp_path)
    ended, dataset = _init(manifest, tmp_path)
    assert f"the path crawl\\0\\img 0.jpg has backslashes, its image is found without: {REWRITING}" in ended.stdout
    assert (
        'captions is called like full_description but is list, such as [["Caption 0", "second"], ["third"]]: write'
        in ended.stdout
    )
    assert _sources(dataset) == {
        "image_key": ("Id",),
        "s3_image_path": ("FilePath",),
        "width": ("Width",),
        "height": ("Height",),
        "short_description": ("title",),
        "aesthetic_score": ("aesthetic_score",),
    }
    assert 'watermark is called like has_watermark but is text, such as "no": write it as true and' in ended.stdout
    assert dataset.mapping.base_uri == f"{tmp_path.as_uri()}/"
    rewrite_paths(manifest, "FilePath")
    ended, dataset = _init(manifest, tmp_path, "--force")
    assert "and 8 images" in ended.stdout
    assert dataset.images.dimensions == "auto", "the sizes, texts all of them, are those of the images"


def test_a_path_on_a_windows_disk_is_told(tmp_path: Path):
    manifest = write_lines(tmp_path / "list.jsonl", [{"path": f"D:\\photos\\{n}.jpg"} for n in range(4)])
    ended, _ = _init(manifest, tmp_path)
    assert "D:\\photos\\0.jpg is on a Windows disk: copy the images" in ended.stdout
    assert REWRITING in ended.stdout


def test_percent_encoded_addresses_say_what_to_rewrite(tmp_path: Path):
    manifest = write_wide_addresses(tmp_path)
    ended, _ = _init(manifest, tmp_path)
    assert f"100%25.jpg is percent-encoded, its image is found without: {REWRITING}" in ended.stdout
    rewrite_paths(manifest, "uri")
    ended, dataset = _init(manifest, tmp_path, "--force")
    assert "and 8 images" in ended.stdout
    assert REWRITING not in ended.stdout
    assert _sources(dataset) == {
        "s3_image_path": ("uri",),
        "full_description": ("caption",),
        "keywords": ("tags",),
    }
    assert len((tmp_path / "starter.yaml").read_text(encoding="utf-8").splitlines()) < 180


def test_a_percent_sign_that_is_part_of_a_name_stays(tmp_path: Path):
    for number in range(4):
        draw_image(tmp_path / f"{number}%20x.png", 30, 30, number)
    manifest = write_lines(tmp_path / "list.jsonl", [{"path": f"{number}%20x.png"} for number in range(4)])
    ended, _ = _init(manifest, tmp_path)
    assert "look at this" not in ended.stdout


def test_an_object_of_captions_asks_for_one_of_them(tmp_path: Path):
    draw_image(tmp_path / "a.png", 30, 30, 1)
    manifest = write_lines(tmp_path / "list.jsonl", [{"path": "a.png", "text": {"en": "x", "de": None}}])
    ended, _ = _init(manifest, tmp_path)
    assert (
        'text is called like full_description but is object, such as {"en": "x", "de": null}: map one of'
        in ended.stdout
    )


def test_a_table_becomes_json_lines_as_the_message_says(tmp_path: Path):
    draw_image(tmp_path / "a.png", 30, 30, 1)
    rows = [{"path": "a.png", "TEXT": "caf\u00e9", "WIDTH": 30.0, "HEIGHT": 30.0, "tags": ["x", None]}]
    pl.DataFrame(rows).write_parquet(tmp_path / "part.parquet")
    pl.scan_parquet(tmp_path / "part.parquet").sink_ndjson(tmp_path / "part.jsonl")
    _, dataset = _init(tmp_path / "part.jsonl", tmp_path)
    assert set(_sources(dataset)) == {"s3_image_path", "full_description", "width", "height"}


def test_rows_with_bytes_that_are_no_utf_8_count_as_rows(tmp_path: Path):
    """Packing keeps them, with U+FFFD and a warning."""
    draw_image(tmp_path / "a.png", 30, 30, 1)
    (tmp_path / "latin.jsonl").write_bytes('{"path": "a.png", "caption": "caf\u00e9"}\n'.encode("latin-1"))
    ended, dataset = _init(tmp_path / "latin.jsonl", tmp_path)
    assert "look at this" not in ended.stdout
    assert set(_sources(dataset)) == {"s3_image_path", "full_description"}
