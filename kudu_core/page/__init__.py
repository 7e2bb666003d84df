"""A page on which one sees a table: what it is made of, what its past takes, what maintenance does.

``gather`` asks an open table and answers with plain values, the ``ReportData`` of ``report_data``; ``render``
makes one self-contained file of HTML of these, and knows no table; ``serve`` shows the same over HTTP to this
machine.  Nothing here writes to a table, and no row of a user is read but the keys that bound rowsets.
"""
