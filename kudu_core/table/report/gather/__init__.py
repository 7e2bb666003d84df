"""Asks an open table what it is made of, in plain values.

All is asked of the views of one moment, and no lock is taken but to look at claims.  Of files it reads
statistics, and of a few of them footers, one page of each column and the times of inserts.
"""
