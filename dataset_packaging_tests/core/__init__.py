"""Tests of dataset_packaging.core."""
