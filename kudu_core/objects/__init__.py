"""Object stores: their URLs, what may be asked of one, and a client that bears lost answers.

No file of a table is in one yet; ``docs/objects.md`` says what is there.
"""
