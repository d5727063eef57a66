"""The exchange of bench.servers over torch.distributed.rpc (TensorPipe): each worker prints one JSON line.

    torch_rpc.py [--bytes 67108864] [--workers 2] [--seconds 2] [--transport shm|tcp]

A worker calls a function of the server with its gradient and gets the new weights. The server holds a lock while it
updates, and returns its own tensor: TensorPipe sends it without a copy. With shm it uses TensorPipe's shared memory
(transport shm, channel cma where the kernel allows it), with tcp its uv transport on loopback."""
import argparse
import json
import os
import statistics
import tempfile
import threading
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

WEIGHTS, LOCK = None, threading.Lock()


def hold(count):
    global WEIGHTS
    WEIGHTS = torch.zeros(count)


def exchange(gradient):
    with LOCK:
        WEIGHTS.add_(gradient, alpha=-1e-3)
    return WEIGHTS


def work(options, worker):
    gradient = torch.full((options.bytes // 4,), 1e-6)
    times = []

    def step():
        return rpc.rpc_sync("server", exchange, args=(gradient,))

    for _ in range(2):
        step()
    start = now = time.perf_counter()
    while now - start < options.seconds:
        before = now
        step()
        now = time.perf_counter()
        times.append(now - before)
    line = json.dumps({"worker": worker, "exchanges": len(times), "median_seconds": statistics.median(times)})
    os.write(1, f"{line}\n".encode())  # at once: the workers share the stream


def process(rank, options, store):
    torch.set_num_threads(1)
    transports = ["shm", "uv"] if options.transport == "shm" else ["uv"]
    channels = ["cma", "basic"] if options.transport == "shm" else ["basic"]
    backend = rpc.TensorPipeRpcBackendOptions(init_method="file://" + store, num_worker_threads=2 * options.workers,
                                              rpc_timeout=120, _transports=transports, _channels=channels)
    name = "server" if rank == options.workers else f"worker{rank}"
    if rank == options.workers:
        hold(options.bytes // 4)
    rpc.init_rpc(name, rank=rank, world_size=options.workers + 1, rpc_backend_options=backend)
    if rank < options.workers:
        work(options, rank)
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--transport", choices=("shm", "tcp"), default="shm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(process, args=(options, folder + "/store"), nprocs=options.workers + 1)


if __name__ == "__main__":
    main()
