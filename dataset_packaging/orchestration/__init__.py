"""Dagster only, thin: assets, checks, schedules and resources."""
