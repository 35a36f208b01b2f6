"""Every object key of a dataset is built here, and nowhere else."""

from dataclasses import dataclass

from dataset_packaging.core.bucketing import Bucket


def shard_name(number: int) -> str:
    """Returns the file name of shard `number` (0-based, without gaps within a bucket)."""
    return f"shard-{number:06d}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The absolute URIs of one dataset. Pure.

    Attributes:
        output_prefix: main shards and nothing else.
        sidecar_prefix: sidecars and nothing else, with the same relative paths.
        work_prefix: index, plan, receipts, rejects, ledger.
    """

    output_prefix: str
    sidecar_prefix: str
    work_prefix: str

    def shard_uri(self, bucket: Bucket, number: int) -> str:
        """Returns where main shard `number` of `bucket` stands."""
        return f"{self.output_prefix}/{bucket.key}/{shard_name(number)}.parquet"

    def sidecar_uri(self, bucket: Bucket, number: int) -> str:
        """Returns where the sidecar of shard `number` of `bucket` stands."""
        return f"{self.sidecar_prefix}/{bucket.key}/{shard_name(number)}.parquet"

    def receipt_uri(self, bucket: Bucket, number: int) -> str:
        """Returns the receipt of a main shard: written last, its presence says that the shard is durable."""
        return f"{self.work_prefix}/receipts/{bucket.key}/{shard_name(number)}.json"

    def facts_uri(self, bucket: Bucket, number: int) -> str:
        """Returns what verification found for each packed row of a shard."""
        return f"{self.work_prefix}/facts/{bucket.key}/{shard_name(number)}.parquet"

    def sidecar_receipt_uri(self, bucket: Bucket, number: int) -> str:
        """Returns the receipt of a sidecar."""
        return f"{self.work_prefix}/sidecar_receipts/{bucket.key}/{shard_name(number)}.json"

    def facts_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of facts, of one bucket or of all; ends in a slash."""
        return f"{self.work_prefix}/facts/" + (f"{bucket.key}/" if bucket else "")

    def receipts_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of receipts, of one bucket or of all; ends in a slash."""
        return f"{self.work_prefix}/receipts/" + (f"{bucket.key}/" if bucket else "")

    def sidecar_receipts_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of sidecar receipts, of one bucket or of all; ends in a slash."""
        return f"{self.work_prefix}/sidecar_receipts/" + (f"{bucket.key}/" if bucket else "")

    def shards_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of main shards, of one bucket or of all; ends in a slash."""
        return f"{self.output_prefix}/" + (f"{bucket.key}/" if bucket else "")

    def sidecars_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of sidecars, of one bucket or of all; ends in a slash."""
        return f"{self.sidecar_prefix}/" + (f"{bucket.key}/" if bucket else "")

    def rejects_uri(self, bucket: Bucket | None) -> str:
        """Returns the reject list of a bucket, or (None) of the rows that the manifest step refused."""
        return f"{self.work_prefix}/rejects/{bucket.key if bucket else 'manifest'}.parquet"

    @property
    def rejects_prefix(self) -> str:
        """The folder of all reject lists; ends in a slash."""
        return f"{self.work_prefix}/rejects/"

    @property
    def contact_sheets_prefix(self) -> str:
        """The folder of contact sheets; for the eye only, may be deleted at any time. Ends in a slash."""
        return f"{self.work_prefix}/contact_sheets/"

    def contact_sheet_uri(self, bucket: Bucket) -> str:
        """Returns the sheet of thumbnails of a bucket."""
        return f"{self.contact_sheets_prefix}{bucket.key}.jpg"

    @property
    def identity_uri(self) -> str:
        """Whose work folder this is."""
        return f"{self.work_prefix}/DATASET.json"

    @property
    def current_uri(self) -> str:
        """The one pointer that publishes a generation."""
        return f"{self.work_prefix}/CURRENT.json"

    @property
    def lease_uri(self) -> str:
        """Who is at work on this dataset."""
        return f"{self.work_prefix}/LEASE.json"

    @property
    def ledger_uri(self) -> str:
        """The balance of every row as a table."""
        return f"{self.work_prefix}/ledger.parquet"

    @property
    def ledger_summary_uri(self) -> str:
        """The balance of the dataset in one JSON object."""
        return f"{self.work_prefix}/ledger.json"

    def retries_uri(self, generation: int) -> str:
        """Returns the rejected rows of a generation whose new attempt succeeded; the next one gives them a place."""
        return f"{self.retries_prefix}generation-{generation:06d}.parquet"

    @property
    def retries_prefix(self) -> str:
        """The folder of successful retries; ends in a slash."""
        return f"{self.work_prefix}/retries/"

    @property
    def generations_prefix(self) -> str:
        """What the URIs of all generations start with; not a folder."""
        return f"{self.work_prefix}/generation-"

    @property
    def merges_prefix(self) -> str:
        """The folder of merge sources that were sorted by shard; derived, may be deleted at any time."""
        return f"{self.work_prefix}/merges/"

    def merge(self, fingerprint: str) -> "MergeLayout":
        """Returns the URIs of one sorted merge source."""
        return MergeLayout(f"{self.work_prefix}/merges/{fingerprint}")

    @property
    def handoff_prefix(self) -> str:
        """The folder of the handoff; ends in a slash."""
        return f"{self.work_prefix}/handoff/"

    def handoff_uri(self, name: str) -> str:
        """Returns a file of the handoff."""
        return f"{self.handoff_prefix}{name}"

    def generation(self, number: int) -> "GenerationLayout":
        """Returns the URIs of generation `number` (1-based)."""
        return GenerationLayout(f"{self.work_prefix}/generation-{number:06d}")


@dataclass(frozen=True, slots=True)
class ResizedLayout:
    """The absolute URIs of the resized images of one size. Pure.

    Attributes:
        resized_prefix: of the dataset; holds a folder for each size.
        work_prefix: of the dataset.
        size: side of the square of their area, in pixels.
    """

    resized_prefix: str
    work_prefix: str
    size: int

    @property
    def root(self) -> str:
        """The folder of the set: shards and nothing else, with the same relative paths as the main ones."""
        return f"{self.resized_prefix}/{self.size}"

    def shard_uri(self, bucket: Bucket, number: int) -> str:
        """Returns where the resized images of shard `number` of `bucket` stand."""
        return f"{self.root}/{bucket.key}/{shard_name(number)}.parquet"

    def receipt_uri(self, bucket: Bucket, number: int) -> str:
        """Returns their receipt, which is written last."""
        return f"{self.receipts_prefix(bucket)}{shard_name(number)}.json"

    def shards_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of the set, of one bucket or of all; ends in a slash."""
        return f"{self.root}/" + (f"{bucket.key}/" if bucket else "")

    def receipts_prefix(self, bucket: Bucket | None = None) -> str:
        """Returns the folder of receipts, of one bucket or of all; ends in a slash."""
        return f"{self.work_prefix}/resized_receipts/{self.size}/" + (f"{bucket.key}/" if bucket else "")


@dataclass(frozen=True, slots=True)
class MergeLayout:
    """The URIs of one merge source, sorted by shard. Pure."""

    root: str

    @property
    def places_uri(self) -> str:
        """Which shard holds which key."""
        return f"{self.root}/places.arrow"

    def run_uri(self, piece: int, number: int) -> str:
        """Returns rows of one piece of the source, as Arrow streams, one per part."""
        return f"{self.root}/runs/{piece:06d}-{number:04d}.arrows"

    def part_uri(self, part: int) -> str:
        """Returns the rows of a range of shards, sorted."""
        return f"{self.root}/parts/{part:06d}.parquet"

    @property
    def summary_uri(self) -> str:
        """What was found in the source; written last."""
        return f"{self.root}/DONE.json"


@dataclass(frozen=True, slots=True)
class GenerationLayout:
    """The URIs below one `generation-N/`: immutable once `CURRENT.json` names it. Pure."""

    root: str

    @property
    def number(self) -> int:
        """Which generation it is."""
        return int(self.root.rpartition("-")[2])

    def slices_uri(self, block: int, part: int) -> str:
        """Returns the rows of one part of a block, as Arrow streams, one per bucket."""
        return f"{self.root}/blocks/{block:06d}-{part:04d}.arrows"

    def keys_uri(self, block: int, part: int) -> str:
        """Returns the keys of one part of a block, sorted by hash."""
        return f"{self.root}/blocks/{block:06d}-{part:04d}.keys.parquet"

    def rejects_part_uri(self, block: int, part: int) -> str:
        """Returns the rows of one part of a block that the manifest step refused."""
        return f"{self.root}/blocks/{block:06d}-{part:04d}.rejects.parquet"

    def fates_uri(self, partition: int) -> str:
        """Returns the rows of one hash partition that are duplicates or keep an earlier place."""
        return f"{self.root}/keys/fates-{partition:04d}.parquet"

    def tombstones_part_uri(self, partition: int) -> str:
        """Returns the earlier places of one hash partition that are now empty."""
        return f"{self.root}/keys/tombstones-{partition:04d}.parquet"

    def index_uri(self, bucket: Bucket) -> str:
        """Returns the index of a bucket: every planned row with its shard and position."""
        return f"{self.root}/index/{bucket.key}.parquet"

    def placement_uri(self, bucket: Bucket) -> str:
        """Returns the keys and places of a bucket, in runs sorted by hash."""
        return f"{self.root}/placement/{bucket.key}.parquet"

    def tombstones_uri(self, bucket: Bucket) -> str:
        """Returns the empty places of a bucket."""
        return f"{self.root}/tombstones/{bucket.key}.parquet"

    @property
    def corrections_uri(self) -> str:
        """True sizes of rows whose source told a wrong one."""
        return f"{self.root}/corrections.parquet"

    @property
    def relocations_uri(self) -> str:
        """Rows that left their places with this generation."""
        return f"{self.root}/relocations.parquet"

    @property
    def plan_uri(self) -> str:
        """One row per shard."""
        return f"{self.root}/plan.parquet"

    @property
    def rejects_uri(self) -> str:
        """Rows that the manifest step refused, duplicates among them."""
        return f"{self.root}/rejects.parquet"

    @property
    def summary_uri(self) -> str:
        """Sources, counts and fingerprints of the generation."""
        return f"{self.root}/generation.json"
