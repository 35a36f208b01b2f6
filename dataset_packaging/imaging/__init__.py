"""Bytes to verdict: what an image is and whether its pixels are whole. Pure."""
