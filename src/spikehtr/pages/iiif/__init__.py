"""IIIF: manifests and collections (Presentation 2 and 3) in, annotations out, and a polite client for both."""

from spikehtr.pages.iiif.client import Client, ClientOptions, FetchError, RefusedError, default_cache
from spikehtr.pages.iiif.manifests import Canvas, Collection, Manifest, Reference, parse_resource

__all__ = [
    "Canvas",
    "Client",
    "ClientOptions",
    "Collection",
    "FetchError",
    "Manifest",
    "Reference",
    "RefusedError",
    "default_cache",
    "parse_resource",
]
