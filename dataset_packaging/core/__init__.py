"""Pure domain logic: no clock, no environment, no network, no Ray, no Dagster."""
