"""Which fields of an unfamiliar manifest fill which columns: names in use, checked against the values. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dataset_packaging.packing.field_survey import FieldFacts, ManifestSurvey

Want = Literal["texts", "text", "json", "number", "size", "boolean", "few_texts", "struct", "sha256", "md5", "bytes"]

FITTING_FRACTION = 0.9
"""Of a field's values, how many must suit a column before the field is proposed for it."""
_FEW_DISTINCT = 8
_LARGEST_SIDE_PX = 1_000_000


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    """What one column is called elsewhere.

    Attributes:
        column: The canonical column, or one of the values that are compared with the file.
        want: What its values look like.
        names: Names of source fields, normalized (see `normalize_name`), the surest first.
    """

    column: str
    want: Want
    names: tuple[str, ...]


# Names as they stand in LAION and img2dataset output, COCO, Conceptual Captions, DataComp, DiffusionDB, JourneyDB,
# Open Images, SA-1B captions, webdataset recipes and common scrapers.
COLUMN_GUESSES: tuple[ColumnGuess, ...] = (
    ColumnGuess(
        "width", "size", ("width", "image_width", "img_width", "width_px", "original_width", "orig_width", "w")
    ),
    ColumnGuess(
        "height", "size", ("height", "image_height", "img_height", "height_px", "original_height", "orig_height", "h")
    ),
    ColumnGuess(
        "full_description",
        "texts",
        ("full_description", "caption", "captions", "text", "texts", "description", "alt_text", "alttext", "alt",
         "image_caption", "img_caption", "image_description", "top_caption", "caption_reference_description"),
    ),
    ColumnGuess(
        "detailed_description",
        "texts",
        ("detailed_description", "detailed_caption", "dense_caption", "long_caption", "caption_long",
         "caption_detailed", "long_description", "recaption", "re_caption", "generated_caption", "synthetic_caption",
         "llava_caption", "vlm_caption", "cogvlm_caption", "gpt4v_caption", "gemini_caption", "blip2_caption",
         "blip_caption"),
    ),
    ColumnGuess(
        "short_description",
        "texts",
        ("short_description", "short_caption", "caption_short", "title", "headline", "summary"),
    ),
    ColumnGuess("user_prompt", "texts", ("user_prompt", "prompt", "prompts", "user_prompts", "instruction")),
    ColumnGuess("keywords", "texts", ("keywords", "tags", "keyword", "tag_list", "hashtags", "key_words")),
    ColumnGuess("ocr_text", "texts", ("ocr_text", "ocr_texts", "ocr", "text_in_image")),
    ColumnGuess(
        "structured_description", "json", ("structured_description", "structured_caption", "caption_structured")
    ),
    ColumnGuess("style", "few_texts", ("style", "image_style", "art_style")),
    ColumnGuess("image_type", "few_texts", ("image_type", "picture_type", "img_type")),
    ColumnGuess("data_source", "few_texts", ("data_source", "source_dataset", "dataset_name", "dataset", "source")),
    ColumnGuess("task", "few_texts", ("task",)),
    ColumnGuess(
        "aesthetic_score",
        "number",
        ("aesthetic_score", "aesthetics_score", "aesthetic", "aesthetics", "predicted_aesthetic", "laion_aesthetic",
         "aesthetic_predictor_score", "aes_score"),
    ),
    ColumnGuess(
        "image_quality_score",
        "number",
        ("image_quality_score", "image_quality", "quality_score", "iqa_score", "quality"),
    ),
    ColumnGuess("design_quality_score", "number", ("design_quality_score", "design_score", "design_quality")),
    ColumnGuess(
        "is_aigc",
        "boolean",
        ("is_aigc", "aigc", "is_ai", "is_ai_generated", "ai_generated", "is_generated", "is_synthetic"),
    ),
    ColumnGuess("has_watermark", "boolean", ("has_watermark", "watermark", "is_watermarked", "watermarked")),
    ColumnGuess("has_barcode", "boolean", ("has_barcode", "barcode", "has_qr_code")),
    ColumnGuess("has_artifact", "boolean", ("has_artifact", "has_artifacts")),
    ColumnGuess("has_mosaic", "boolean", ("has_mosaic", "mosaic")),
    ColumnGuess("has_rotation", "boolean", ("has_rotation", "is_rotated", "rotated")),
    ColumnGuess("text_overlay", "boolean", ("text_overlay", "has_text_overlay", "has_overlay_text", "has_text")),
    ColumnGuess("objects", "json", ("objects",)),
    ColumnGuess("ocr_bbox", "json", ("ocr_bbox", "ocr_boxes")),
    ColumnGuess("ernie_image_aes", "struct", ("ernie_image_aes",)),
    ColumnGuess("dqm_d1_v6_1", "struct", ("dqm_d1_v6_1",)),
    ColumnGuess("sha256", "sha256", ("sha256", "image_sha256", "content_sha256", "file_sha256", "sha256_hash")),
    ColumnGuess("md5", "md5", ("md5", "image_md5", "content_md5", "file_md5", "md5_hash")),
    ColumnGuess(
        "bytes",
        "bytes",
        ("bytes", "size_bytes", "file_size", "filesize", "file_bytes", "content_length", "num_bytes"),
    ),
)  # fmt: skip

PATH_NAMES = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "image_path", "img_path", "s3_uri", "s3_key",
              "path", "file_path", "filepath", "file_name", "filename", "image_file", "file", "image", "img", "uri",
              "image_url", "img_url", "url", "location", "object_key", "key", "local_path", "src")  # fmt: skip
KEY_NAMES = ("image_key", "id", "key", "uid", "uuid", "guid", "sample_id", "image_id", "img_id", "asset_id", "photo_id",
             "item_id", "row_id", "annotation_id", "ann_id", "sha256", "md5", "hash")  # fmt: skip
LESSER_COPY = re.compile(r"thumb|preview|small|tiny|icon|avatar|mask|depth|canny|control|logo", re.IGNORECASE)
"""Names of pictures that stand beside the one that a row is about."""


def normalize_name(name: str) -> str:
    """Write a field's name as lower-case words joined by `_`: `imageURL`, `Image-Url` and `image_url` are one; pure."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def rank_name(field: FieldFacts, names: Sequence[str]) -> tuple[int, int] | None:
    """Rank how well a field's name is one of `names`, the lowest first: shallow fields, then the surer names; pure."""
    name = normalize_name(field.leaf)
    return (field.depth, names.index(name)) if name in names else None


def fits(field: FieldFacts, want: Want, survey: ManifestSurvey) -> bool:
    """Say whether nearly all values of a field suit a column that wants such values; pure."""
    filled = field.present - field.blank
    return filled > 0 and _suiting(field, want, survey) >= FITTING_FRACTION * filled


def _suiting(field: FieldFacts, want: Want, survey: ManifestSurvey) -> int:
    """Count the values that suit; all or none where only the field as a whole can tell."""
    kinds = field.kinds.get
    texts = kinds("text", 0) - field.blank
    if want == "texts":
        return texts + kinds("texts", 0) + kinds("empty list", 0)
    if want == "text":
        return texts
    if want == "few_texts":
        is_label = field.mean_chars <= 60 and field.distinct <= max(_FEW_DISTINCT, survey.rows // 20)
        return texts if is_label and not any(field.path_rows[kind] for kind in ("absolute", "web")) else 0
    if want == "json":
        starts = sum(example.startswith(('"{', '"[')) for example in field.examples)
        json_texts = texts if starts == len(field.examples) else 0
        return json_texts + kinds("object", 0) + kinds("list", 0) + kinds("texts", 0) + kinds("empty list", 0)
    if want == "struct":
        return kinds("object", 0)
    if want == "boolean":
        return kinds("boolean", 0) + field.boolean_likes
    numbers = kinds("integer", 0) + kinds("number", 0) + field.numeric_texts
    if want == "number":
        return numbers
    if want in ("size", "bytes"):
        most = _LARGEST_SIDE_PX if want == "size" else float("inf")
        is_possible = field.smallest is not None and field.largest is not None and field.largest <= most
        return numbers if is_possible and field.largest else 0
    digits = 64 if want == "sha256" else 32
    is_hash = all(re.fullmatch(rf'"[0-9a-fA-F]{{{digits}}}"', example) for example in field.examples)
    return texts if is_hash else 0
