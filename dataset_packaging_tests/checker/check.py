"""The whole check: every row of the manifest against everything that landed."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from dataset_packaging_tests.checker.contract import MAIN_COLUMNS, Dataset, bucket_of, read_dataset
from dataset_packaging_tests.checker.landed import (
    Reject,
    check_file,
    check_same_schema,
    read_pairs,
    read_rejects,
    shard_keys,
)
from dataset_packaging_tests.checker.manifest import Number, Row, first_value, read_rows
from dataset_packaging_tests.checker.pictures import Judgement, judge, refused
from dataset_packaging_tests.checker.values import column_findings, meta_info_findings, packaging_findings

TRANSIENT = frozenset({"fetch_failed"})


def check(source: Path) -> list[str]:
    """Returns what is wrong with a packed dataset, nothing if all is right.

    Recomputes the fate of every row of the manifest from the JSONL, the image files and the contract, and compares it
    with shards, sidecars, rejects and ledger. Reads local files only; holds the manifest's lines in memory.
    """
    dataset = read_dataset(source)
    findings: list[str] = []
    main_keys, sidecar_keys = (shard_keys(folder, findings) for folder in (dataset.output, dataset.sidecar))
    findings.extend(f"{dataset.sidecar.name}/{key} is missing" for key in set(main_keys) - set(sidecar_keys))
    findings.extend(f"{dataset.output.name}/{key} is missing" for key in set(sidecar_keys) - set(main_keys))
    readable = [key for key in main_keys if check_file(dataset, dataset.output / key, MAIN_COLUMNS, findings)]
    side = dataset.sidecar_columns
    paired = {key for key in sidecar_keys if check_file(dataset, dataset.sidecar / key, side, findings)}
    check_same_schema(dataset.output, readable, findings)
    check_same_schema(dataset.sidecar, sorted(paired), findings)

    rows = list(read_rows(dataset))
    judgements: dict[str, Judgement] = {}
    packed: Counter[str] = Counter()
    by_key = {row.key: row for row in rows if row.reasons != {"duplicate_key"} and (not row.reasons or row.may_pass)}
    for key in readable:
        if key in paired or not (dataset.sidecar / key).exists():
            findings.extend(f"{key}: {text}" for text in _shard_findings(dataset, key, by_key, judgements, packed))
    rejects = read_rejects(dataset, findings)
    findings.extend(_fate_findings(dataset, rows, packed, rejects, judgements))
    findings.extend(_ledger_findings(dataset, len(rows), packed.total(), rejects))
    return findings


def _shard_findings(
    dataset: Dataset, key: str, rows: dict[str, Row], judgements: dict[str, Judgement], packed: Counter[str]
) -> Iterator[str]:
    bucket = key.rsplit("/", 1)[0]
    count = 0
    for position, (main, sidecar) in enumerate(read_pairs(dataset, key)):
        count += 1
        image_key = str(main["image_key"])
        packed[image_key] += 1
        row = rows.get(image_key)
        if row is None:
            yield f"row {position}: {image_key!r} stands in no line of the manifest that may be packed"
            continue
        judgement = _judged(dataset, row, judgements)
        texts = [*_row_findings(dataset, bucket, row, judgement, main)]
        if sidecar is None:
            texts.append("the sidecar has no such row")
        else:
            texts.extend(_sidecar_findings(dataset, row, judgement, main, sidecar))
        yield from (f"row {position} ({row.place}, {image_key!r}): {text}" for text in texts)
    sidecar_path = dataset.sidecar / key
    if sidecar_path.exists() and (found := pq.read_metadata(sidecar_path).num_rows) != count:
        yield f"the sidecar has {found} rows, the shard {count}"


def _judged(dataset: Dataset, row: Row, judgements: dict[str, Judgement]) -> Judgement:
    if row.uri not in judgements:
        judgements[row.uri] = judge(row.uri, dataset)
    judgement = judgements[row.uri]
    if judgement.sha256 and _told_otherwise(dataset, row, judgement):
        return refused("checksum_mismatch", *(() if judgement.accepted else judgement.reasons))
    return judgement


def _told_otherwise(dataset: Dataset, row: Row, judgement: Judgement) -> bool:
    fields = row.fields() if any(name in dataset.sources for name in ("sha256", "md5", "bytes")) else {}
    for name, actual in (("sha256", judgement.sha256), ("md5", judgement.md5), ("bytes", str(judgement.size_bytes))):
        told = first_value(fields, dataset.sources.get(name, ()))
        text = told.text if isinstance(told, Number) else told
        if isinstance(text, str) and text.lower() != actual:
            return True
    return False


def _row_findings(
    dataset: Dataset, bucket: str, row: Row, judgement: Judgement, main: dict[str, object]
) -> Iterator[str]:
    if main["s3_image_path"] != row.uri:
        yield f"s3_image_path is {main['s3_image_path']!r}, not {row.uri!r}"
    if not judgement.accepted:
        yield f"is packed, but must be rejected: {sorted(judgement.reasons)}"
        return
    image = main["image"]
    assert isinstance(image, bytes)
    if len(image) != judgement.size_bytes or hashlib.sha256(image).hexdigest() != judgement.sha256:
        yield "the image bytes are not those of the file"
    size = (main["width"], main["height"])
    if size != (judgement.width, judgement.height):
        yield f"the size is {size}, not {(judgement.width, judgement.height)}"
    if bucket_of(judgement.width, judgement.height) != bucket:
        yield f"belongs into {bucket_of(judgement.width, judgement.height)}"
    if main["is_rgba"] != judgement.is_rgba:
        yield f"is_rgba is {main['is_rgba']}"
    if row.exact:
        yield from column_findings(dataset, row, main)


def _sidecar_findings(
    dataset: Dataset, row: Row, judgement: Judgement, main: dict[str, object], sidecar: dict[str, object]
) -> Iterator[str]:
    if sidecar.get("image_key") != main["image_key"]:
        yield f"the sidecar's row is that of {sidecar.get('image_key')!r}"
        return
    for column, value in main.items():
        if column != "image" and (column not in sidecar or sidecar[column] != value):
            yield f"the sidecar's {column} is another"
    yield from meta_info_findings(dataset, row, sidecar)
    if judgement.accepted:
        yield from packaging_findings(judgement, sidecar)
    if row.exact:
        only = {name: value for name, value in sidecar.items() if name not in main}
        yield from column_findings(dataset, row, only)


def _fate_findings(
    dataset: Dataset,
    rows: list[Row],
    packed: Counter[str],
    rejects: list[Reject],
    judgements: dict[str, Judgement],
) -> Iterator[str]:
    yield from (f"{key!r} is packed {count} times" for key, count in packed.items() if count > 1)
    by_place: dict[tuple[Path, int], list[Reject]] = defaultdict(list)
    for reject in rejects:
        by_place[reject.manifest, reject.line].append(reject)
    for row in rows:
        found = by_place.pop((row.manifest, row.line), [])
        reasons = [reject.reason for reject in found]
        is_packed = row.key in packed and row.reasons != {"duplicate_key"}
        if len(found) > 1:
            yield f"{row.place}: is rejected {len(found)} times: {reasons}"
        if found and is_packed:
            yield f"{row.place}: is packed and rejected ({reasons[0]})"
        elif not found and not is_packed:
            yield f"{row.place}: is lost ({row.key!r})"
        elif found:
            yield from (f"{row.place}: {text}" for text in _reject_findings(dataset, row, found[0], judgements))
        elif row.reasons and not row.may_pass:
            yield f"{row.place}: is packed, but must be rejected: {sorted(row.reasons)}"
    yield from (f"rejects: {place.name}:{line} is no row of the manifest" for place, line in by_place)


def _reject_findings(dataset: Dataset, row: Row, reject: Reject, judgements: dict[str, Judgement]) -> Iterator[str]:
    right = row.reasons
    if not row.reasons or row.may_pass:
        judgement = _judged(dataset, row, judgements)
        right = right | judgement.reasons
        if not right:
            yield f"{row.key!r} is rejected as {reject.reason}, but its picture is whole"
            return
    if reject.reason not in right | TRANSIENT:
        yield f"{row.key!r} is rejected as {reject.reason}, expected {sorted(right)}"
    if row.key and reject.key not in (None, row.key):
        yield f"the reject names {reject.key!r}, not {row.key!r}"


def _ledger_findings(dataset: Dataset, rows: int, packed: int, rejects: list[Reject]) -> Iterator[str]:
    path = dataset.work / "ledger.json"
    if not path.exists():
        yield "ledger.json is missing"
        return
    told = json.loads(path.read_text(encoding="utf-8"))
    told = told.get("total", told)
    by_reason = Counter(reject.reason for reject in rejects)
    duplicates = by_reason.pop("duplicate_key", 0)
    expected = {"rows": rows, "packed": packed, "rejected": dict(by_reason), "duplicates": duplicates, "pending": 0}
    for name, value in expected.items():
        if told.get(name) != value:
            yield f"the ledger says {name} = {told.get(name)}, counted: {value}"
