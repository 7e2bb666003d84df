# What a search or a test in pages may end with besides an answer.  The numbers lie below those of
# ``base/status.pxd``, so that one negative number says which of all it is.
cdef enum:
    ABSENT = -1                 # of searches, whose answers are rows: it is not there
    NEED_PAGE = -101            # a page is not held; the search goes on when it has been loaded
    NEEDS_GENERAL_PATH = -102   # nothing is wrong, but this path cannot answer
