"""Work that is done ahead of its reader, as `cocn.loading.prefetch` does it."""

from cocn.loading.prefetch import Prefetcher

__all__ = ["Prefetcher"]
