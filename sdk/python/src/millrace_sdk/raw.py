"""The calls of the contract, without anything added: services by name, methods by name, fields by keyword."""

from __future__ import annotations

from typing import Any

from ._core import wire

_READS = ("Get", "List", "Stats", "Status", "Why", "Wait", "Logs", "Effects", "Range", "BatchGet", "Count", "Search")


class Raw:
    """Calls of a Client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, service: str) -> _Service:
        if service not in wire.SERVICES:
            raise AttributeError(f"the contract has no service {service}")
        return _Service(self._client, wire.SERVICES[service])


class AsyncRaw(Raw):
    """Calls of an AsyncClient, each of which is awaited."""


class _Service:
    def __init__(self, client: Any, service: Any) -> None:
        self._client = client
        self._service = service

    def __getattr__(self, method: str) -> Any:
        found = self._service.methods_by_name.get(method)
        if found is None:
            raise AttributeError(f"{self._service.name} has no method {method}")
        if getattr(found, "client_streaming", False):
            raise AttributeError(f"{method} is a stream in both directions, which raw calls do not have")
        streams = bool(getattr(found, "server_streaming", False))

        def call(request: Any = None, *, timeout: Any = None, **fields: Any) -> Any:
            """Call the method; a stream of answers is returned as a list."""
            if request is None:
                request = wire.message(found.input_type.full_name)(**fields)
            more = {} if timeout is None else {"timeout": timeout}
            return self._client._unary(
                f"{self._service.name}/{method}",
                request,
                found.output_type.full_name,
                lambda r: r,
                repeat=method.startswith(_READS),
                stream=streams,
                **more,
            )

        return call
