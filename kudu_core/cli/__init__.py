"""The command line: ``kudu_core COMMAND PATH`` (docs/cli.md).

``registry.py`` lists the commands, each with the module that has it; ``shared/`` is what they have in common.
"""
