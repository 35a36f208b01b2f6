"""Stores, JSONL and Parquet: everything that reads or writes bytes."""
