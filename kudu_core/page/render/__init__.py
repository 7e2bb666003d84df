"""Makes one page of HTML of the values of a report: text in, text out, and no table is asked anything.

Each module makes one section.  Whatever comes from a table passes ``markup.text``; lengths are percents, so
that the page fits any width without a script, which only sorts, expands and switches.
"""
