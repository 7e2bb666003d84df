"""A page on which one sees a table: what it is made of, what its past takes, what maintenance does.

``report_data`` has what is shown, as plain values, which ``table/report/gather`` asks an open table for;
``render`` makes one self-contained file of HTML of these.  Nothing here knows a table, or how it is stored.
"""
