"""What people see and do in the web UI, in a real browser. The tests follow one another on the same Dagster."""

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from dataset_packaging.orchestration.keys import range_tags
from dataset_packaging_tests.orchestration.small_dataset import SQUARE, WIDE, SmallDataset
from dataset_packaging_tests.servers.dagster_dev import LOCATION, DagsterDev

BUCKET = "0_512/10000"


def _show_markdown(page: Page, name: str) -> Locator:
    """Open the picture of a metadata entry; returns it once it is drawn."""
    row = page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
    row.get_by_text("[Show Markdown]").click()
    picture = page.get_by_role("dialog").locator("img")
    expect(picture).to_be_visible()
    page.wait_for_function("picture => picture.complete && picture.naturalWidth > 0", arg=picture.element_handle())
    return picture


def _backfill_status(dagster: DagsterDev) -> str:
    query = "{ partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { status } } } }"
    results = dagster.ask(query)["partitionBackfillsOrError"]["results"]
    return str(results[0]["status"]) if results else "NONE"


def test_everything_is_materialised_by_a_few_clicks(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/locations/{LOCATION}/asset-groups/photos/lineage")
    page.get_by_role("button", name="Materialize all (4)").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    dialog.get_by_role("button", name="Launch backfill").click()
    expect(dialog).to_be_hidden()
    dagster.wait_for(lambda: _backfill_status(dagster) == "COMPLETED_SUCCESS", 280, "the end of the backfill")


def test_the_lineage_goes_from_the_source_to_the_sidecars(dagster: DagsterDev, page: Page, screenshots: Path):
    page.goto(f"{dagster.url}/locations/{LOCATION}/asset-groups/photos/lineage")
    for name in ("source", "manifest", "shards", "sidecars", "handoff"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.get_by_text("100% filled").first).to_be_visible()
    page.screenshot(path=screenshots / "lineage.png")


def test_the_manifest_shows_how_rows_spread_over_the_buckets(dagster: DagsterDev, page: Page, screenshots: Path):
    page.goto(f"{dagster.url}/assets/photos/manifest?view=overview")
    expect(page.get_by_text("planned rows")).to_be_visible()
    expect(page.get_by_text("bad_row")).to_be_visible()
    _show_markdown(page, "heat map")
    page.screenshot(path=screenshots / "heat_map.png")


def test_a_partition_shows_its_rows_and_its_pictures(dagster: DagsterDev, page: Page, screenshots: Path):
    page.set_viewport_size({"width": 1600, "height": 1100})
    page.goto(f"{dagster.url}/assets/photos/shards?view=partitions&partition={BUCKET.replace('/', '%2F')}")
    expect(page.get_by_role("heading", name=BUCKET).or_(page.get_by_text(BUCKET, exact=True)).first).to_be_visible()
    for name in ("dagster/row_count", "row groups", "rows/s", "rejects by reason"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    _show_markdown(page, "contact sheet")
    page.screenshot(path=screenshots / "partition.png")


def test_a_sidecar_partition_shows_a_few_rows(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/assets/photos/sidecars?view=partitions&partition={BUCKET.replace('/', '%2F')}")
    expect(page.get_by_text("null rates", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_text("preview", exact=True))
    row.get_by_text("[Show Markdown]").click()
    table = page.get_by_role("dialog").get_by_role("table")
    expect(table.get_by_text("image_key", exact=True)).to_be_visible()
    expect(table.get_by_text("row 0", exact=True)).to_be_visible()


def test_the_handoff_shows_card_and_pictures(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/assets/photos/handoff?view=overview")
    for name in ("card", "stats.png", "contact_sheets/0_512.jpg", "summary"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    _show_markdown(page, "stats.png")


def test_a_failed_check_shows_which_bucket_and_why(dagster: DagsterDev, page: Page, nightly: SmallDataset):
    first = dagster.launch("package_nightly", range_tags(SQUARE, WIDE))
    assert dagster.wait_for_end(first) == "SUCCESS"
    nightly.shard(SQUARE).with_name("notes.txt").write_text("not a shard")
    second = dagster.launch("package_nightly", range_tags(SQUARE, WIDE))
    assert dagster.wait_for_end(second) == "FAILURE"

    page.goto(f"{dagster.url}/assets/nightly/shards?view=checks&checkDetail=contiguous_shards")
    expect(page.get_by_text("This is a blocking asset check.")).to_be_visible()
    page.get_by_text("Partitions", exact=True).last.click()
    expect(page.get_by_text("Failed (1)", exact=True)).to_be_visible()
    page.get_by_text(SQUARE, exact=True).first.click()
    expect(page.get_by_text("notes.txt").first).to_be_visible()

    page.goto(f"{dagster.url}/runs/{second}")
    expect(page.get_by_text(f"have no new sidecars: {SQUARE}").first).to_be_visible()
    page.goto(f"{dagster.url}/assets/nightly/sidecars?view=partitions")
    expect(page.get_by_text("Failed (1)", exact=True)).to_be_visible()


def test_the_schedule_has_its_page(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/locations/{LOCATION}/schedules/package_nightly_schedule")
    expect(page.get_by_text("At 02:00 AM").first).to_be_visible()
    expect(page.get_by_text("package_nightly", exact=True).first).to_be_visible()
    expect(page.get_by_role("switch").or_(page.get_by_text("Running")).first).to_be_visible()


def test_a_broken_file_is_named(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/assets/broken_datasets/broken.yaml?view=overview")
    expect(page.get_by_text("This file is not loaded.").first).to_be_visible()
    expect(page.get_by_text("colour").first).to_be_visible()


def test_the_launchpad_offers_the_options_of_a_run(dagster: DagsterDev, page: Page):
    page.goto(f"{dagster.url}/locations/{LOCATION}/jobs/package_nightly/playground")
    expect(page.get_by_text("run_options").first).to_be_visible()
