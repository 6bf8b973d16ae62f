"""A small local server that answers generate requests in a spawned worker process on the GPU; no NVTX anywhere.

The parent holds the HTTP server (loopback only) and never touches CUDA; the worker decodes one token after the other
and hands each to the parent. A built-in client sends requests with pauses; without `--exit` the server then waits
for more until it is stopped (SIGINT or SIGTERM), like a server that is profiled for a while from the outside.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from typing import Any

TOKENS_PER_REQUEST = 32
PAUSE_S = 0.05  # between two requests of the client: idle time that is no gap of a decode step


def main() -> None:
    """Start the worker, wait until it is ready, serve."""
    parser = argparse.ArgumentParser(description="HTTP server with a spawned GPU worker")
    parser.add_argument("--graph", action="store_true", help="the worker replays a CUDA graph")
    parser.add_argument("--requests", type=int, default=0, help="requests of the client; 0 = without end")
    parser.add_argument("--exit", action="store_true", help="end when the client is done")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs, options.graph))
    worker.start()
    theirs.close()
    ours.recv()
    print(f"worker {worker.pid} is ready", file=sys.stderr, flush=True)
    try:
        serve(ours, options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not break the orderly end
        ours.close()  # the worker ends at the end of its pipe
        worker.join(timeout=10)


def serve(worker: Connection, options: argparse.Namespace) -> None:
    """Answer until interrupted, or with `--exit` until the client has had its answers."""
    server = HTTPServer(("127.0.0.1", 0), handler(worker))
    client = threading.Thread(target=send_requests, args=(server, options), daemon=True)
    client.start()
    server.serve_forever(poll_interval=0.05)


def handler(worker: Connection) -> type[BaseHTTPRequestHandler]:
    """A handler for POST /generate {"tokens": N} that answers {"tokens": [[…batch…], …]}."""

    class Generate(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            worker.send(request["tokens"])
            tokens = [worker.recv() for _ in range(request["tokens"])]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"tokens": tokens}).encode())

        def log_message(self, *_: object) -> None:
            """Quiet: one line a request would drown the profiler's messages."""

    return Generate


def send_requests(server: HTTPServer, options: argparse.Namespace) -> None:
    """The client: one request after the other, with pauses, until done or until the server goes away."""
    with contextlib.suppress(OSError):
        request_all(server, options)
    if options.exit:
        server.shutdown()


def request_all(server: HTTPServer, options: argparse.Namespace) -> None:
    url = f"http://127.0.0.1:{server.server_port}/generate"
    body = json.dumps({"tokens": TOKENS_PER_REQUEST}).encode()
    for _ in range(options.requests) if options.requests else itertools.count():
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60) as answer:
            answer.read()
        time.sleep(PAUSE_S)
    print(f"client: {options.requests} requests answered", file=sys.stderr, flush=True)


def work(parent: Connection, graph: bool) -> None:
    """The worker process: decode as many tokens as the parent asks for, each sent as soon as it is known."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this process
    import torch

    with torch.inference_mode():
        step, token = decoder(graph)
        parent.send("ready")
        with contextlib.suppress(EOFError, BrokenPipeError):
            while True:
                for _ in range(parent.recv()):
                    step()
                    parent.send(token.tolist())


def decoder(graph: bool) -> tuple[Callable[[], object], Any]:
    """A small Llama's step, warmed up, and the tensor that holds its newest tokens."""
    import torch

    from tracelab.kernels._gpu_window import warm_up
    from tracelab.kernels._llama_model import LlamaStep
    from tracelab.kernels._llama_shape import LlamaConfig

    config = LlamaConfig(batch=2, ctx=512, layers=8, hidden=2048, heads=16, kv_heads=4, ffn=5632, vocab=32000)
    model = LlamaStep(config, torch.device("cuda"), torch.bfloat16, lambda *_: contextlib.nullcontext())
    warm_up(model.step)
    return replay_of(model.step) if graph else model.step, model.token


def replay_of(step: Callable[[], object]) -> Callable[[], object]:
    """Capture `step` in a CUDA graph, without NVTX; returns its replay."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], object] = graph.replay
    return replay


if __name__ == "__main__":
    main()
