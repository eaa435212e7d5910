"""The extender's command in one process, under uvicorn without gunicorn: what a master process costs."""

from __future__ import annotations

import uvicorn

from extender.cli import serve
from extender.cli.main import main
from extender.web.server import Server


class Alone(Server):
    def run(self) -> None:
        uvicorn.Server(uvicorn.Config(self.load(), **self.options)).run(sockets=[self.socket])


if __name__ == "__main__":
    serve.Server = Alone  # type: ignore[misc]
    main()
