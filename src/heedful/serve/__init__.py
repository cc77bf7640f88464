"""Serves models as a web page and an HTTP API.

The server process handles HTTP and never computes; every model runs in its own worker process, which knows no HTTP. A
pipe connects the two. `worker` is the model's side of the pipe and `model_process` the server's; `routes` and `api`
hold the routes, `middleware` the limits, response headers and the log. HTTP itself is uvicorn's.
"""
