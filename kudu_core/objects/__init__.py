"""Object stores: their URLs, what may be asked of one, a client that bears lost answers, files and a lease.

``docs/objects.md`` is for users.
"""
