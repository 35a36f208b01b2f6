"""Tests of dataset_packaging; they mirror the package."""
