"""The extender's command in one process, under uvicorn without gunicorn: what a master process costs."""

from __future__ import annotations

import uvicorn

from extender.cli.main import main
from extender.web.server import Server


def run(server: Server) -> None:
    uvicorn.Server(uvicorn.Config(server.load(), **server.options)).run(sockets=[server.socket])


if __name__ == "__main__":
    Server.run = run  # type: ignore[method-assign, assignment]
    main()
