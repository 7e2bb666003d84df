"""Codecs: blocks of bytes, packed and unpacked."""
