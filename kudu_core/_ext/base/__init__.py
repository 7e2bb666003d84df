"""What every kernel may use: errors, bits, cells, bytes of keys, hashes, checksums, locks."""
