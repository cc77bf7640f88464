"""A model as a web page and an API: text comes in over HTTP, answers go out, whoever asks and however many do.

The server process speaks HTTP and never computes; every model runs in a process of its own, which never speaks HTTP.
Between them goes a pipe. Read `work` and `worker` for the side of the model, `engine` for the other end of the pipe,
`app` for the routes, `middleware` for limits, headers and the log. HTTP itself is uvicorn's.
"""
