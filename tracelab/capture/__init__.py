"""Captures a program under nsys and makes what comes out readable and safe to share.

Knows nothing of analysis: from here the rest of tracelab gets a path to an SQLite export and plain facts about the run.
"""
