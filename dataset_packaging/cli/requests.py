"""Requests to the store, as the commands tell them. Pure."""

from collections.abc import Mapping

from dataset_packaging.cli.outcome import JsonValue
from dataset_packaging.cli.tables import format_count, format_dollars
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.request_estimate import Requests


def requests_of(counts: Mapping[str, int]) -> Requests:
    """Take the requests by kind from what was counted (see `Stores.stats`)."""
    return Requests(counts.get("get", 0), counts.get("head", 0), counts.get("put", 0), counts.get("list", 0))


def describe_requests(requests: Requests) -> str:
    """Write the requests by kind on one line."""
    return (
        f"{format_count(requests.gets)} GET, {format_count(requests.heads)} HEAD, {format_count(requests.puts)} PUT, "
        f"{format_count(requests.lists)} LIST"
    )


def summarize_requests(requests: Requests) -> dict[str, JsonValue]:
    """Say the same to machines."""
    return {"get": requests.gets, "head": requests.heads, "put": requests.puts, "list": requests.lists}


def render_work(counts: Mapping[str, int], images: int) -> str:
    """Write what a run did to S3: requests and their price, GETs for each image, tries again, grants.

    Args:
        counts: Of the run, its tasks included.
        images: That were read: packed and rejected ones.
    """
    requests = requests_of(counts)
    lines = [f"requests: {describe_requests(requests)}; at S3's prices {format_dollars(Prices().dollars(requests))}"]
    mean = source_gets_per_image(counts, images)
    more = [] if mean is None else [f"{mean:.2f} GET per image, manifest included"]
    retries, throttled, grant_calls = (counts.get(name, 0) for name in ("retries", "throttled", "grant_calls"))
    if retries:
        more.append(f"{format_count(retries)} tried again, {format_count(throttled)} throttled")
    if grant_calls:
        more.append(f"{format_count(grant_calls)} grant calls")
    return "\n".join([*lines, *(["          " + "; ".join(more)] if more else [])])


def source_gets_per_image(counts: Mapping[str, int], images: int) -> float | None:
    """Return the mean of GETs below the source prefixes for each image; None where none was read."""
    gets = counts.get("source_get", 0)
    return gets / images if gets and images else None
