"""Image datasets on object storage, packed into verified, bucketed Parquet shards."""

__version__ = "0.1.0"
