"""Tests of dataset_packaging.io."""
