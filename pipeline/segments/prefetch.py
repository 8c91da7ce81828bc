"""Work done in a thread ahead of its reader, from `cocn.loading.prefetch`."""

from cocn.loading.prefetch import Prefetcher

__all__ = ["Prefetcher"]
