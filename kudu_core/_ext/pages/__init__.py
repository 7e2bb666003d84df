"""Payloads of pages: mini-blocks of fixed width and of strings, dictionaries, zones."""
