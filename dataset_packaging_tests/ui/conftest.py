"""A real Dagster over the example dataset and some others, and a real browser that looks at it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dataset_packaging_tests.orchestration.small_dataset import SQUARE, WIDE, SmallDataset
from dataset_packaging_tests.servers.dagster_dev import DagsterDev

CHROMIUM = "/usr/bin/chromium"
EXAMPLES = Path(__file__).parents[2] / "examples"

expect.set_options(timeout=30_000)


@pytest.fixture(scope="package")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example dataset, one with a schedule, and a file that is broken."""
    folder = tmp_path_factory.mktemp("project") / "examples"
    folder.mkdir()
    for name in ("photos.yaml", "photos.jsonl"):
        shutil.copy(EXAMPLES / name, folder)
    shutil.copytree(EXAMPLES / "photos", folder / "photos")
    (folder / "broken.yaml").write_text("name: broken\nmanifest: entries.jsonl\noutput_prefix: out\ncolour: red\n")
    return folder


@pytest.fixture(scope="package")
def nightly(datasets: Path) -> SmallDataset:
    """A small dataset that is packed every night."""
    dataset = SmallDataset(datasets, "nightly", yaml='schedule: {cron: "0 2 * * *", timezone: Europe/Vienna}\n')
    for bucket in (SQUARE, WIDE):
        dataset.add(bucket)
    return dataset


@pytest.fixture(scope="package")
def dagster(datasets: Path, nightly: SmallDataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterDev]:
    server = DagsterDev(tmp_path_factory.mktemp("dagster"), datasets)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The Chromium of the system; nothing is downloaded."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is missing: make debian-packages")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1600, "height": 1000}, locale="en-US")
    page.set_default_timeout(30_000)
    yield page
    page.close()


@pytest.fixture
def screenshots(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where pictures go: the folder of `--screenshots`, else one that is thrown away."""
    chosen = request.config.getoption("--screenshots")
    folder = Path(chosen) if chosen else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
