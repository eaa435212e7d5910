"""Sockets of the servers: an address becomes a bound socket, of IPv4, IPv6 or both."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from recommender.base.errors import Misuse


def bound_socket(address: str) -> socket.socket:
    """A socket bound to `host:port`, which clients cannot connect to before it listens; Misuse if that is impossible.

    Without a host it is that of all interfaces, by IPv4 and IPv6, as a cluster may have either; port 0 is any free one.
    """
    host, _, port = address.rpartition(":")
    both = not host and socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if both or ":" in host else socket.AF_INET)
    if both:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), int(port)))
    except (OSError, ValueError, OverflowError) as error:
        bound.close()
        remedy = "Give a free host:port, as in 127.0.0.1:8943."
        raise Misuse(f"--address {address}: cannot listen there ({error}). {remedy}") from error
    return bound


def is_loopback(address: str) -> bool:
    """Whether a `host:port` can only be reached from this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
