"""The command line: parse, call the pipeline, map the outcome to an exit code."""
