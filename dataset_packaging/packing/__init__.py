"""The use case: manifest to shards to sidecars to ledger, on any executor."""
