"""The same job by other libraries: read, verify with Pillow, write. Each script runs in an environment of its own.

Usage of each: python SCRIPT MANIFEST FOLDER. They import nothing of this project but `job`, which stands beside them.
"""
