"""tracelab: where did my decode step go?"""

__version__ = "0.1.0"
