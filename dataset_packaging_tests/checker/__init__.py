"""An independent judge of packed datasets: written from the contract, importing nothing of the product."""

from dataset_packaging_tests.checker.check import check

__all__ = ["check"]
