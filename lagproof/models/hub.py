"""Whether the Hugging Face hub can be asked for a model or a data set. Imports no torch."""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request


def check_reachable(endpoint: str, *, cached: bool) -> None:
    """Fail at once where there is no network; the hub's libraries alone would try for up to a minute.

    Args:
        endpoint: address of the hub.
        cached: whether there is a copy in the cache, which is good without a network.

    Raises:
        OSError: the host has no address.
    """
    proxied = any(urllib.request.getproxies().get(scheme) for scheme in ("http", "https", "all"))
    host = urllib.parse.urlsplit(endpoint).hostname
    if not cached and not proxied and host is not None:
        socket.getaddrinfo(host, 443)
