"""`tracelab cache clear`: remove what was exported from `.nsys-rep` files, and the reports that were kept."""


def clear() -> None:
    """Remove the cache folder's content and say how much was freed."""
    from tracelab.capture.cache import clear_cache
    from tracelab.units import data

    print(f"cache cleared: {data(clear_cache())} freed")
