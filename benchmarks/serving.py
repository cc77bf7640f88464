"""How `heedful serve` holds under load, beside `heedful translate` on a file: on loopback, and bounded.

    python benchmarks/serving.py runs/demo/model runs/demo/data/test.en
    python benchmarks/serving.py MODEL LINES --parts drain --drains 50

Capacity alternates rounds of 64 clients that each send one sentence after the other with rounds of the same lines as a
file, and prints their ratio: of sentences a second, and of processor seconds that the model took for a sentence, which
says more when other programs want the processors too. The other parts send at a rate, whether answers come or not: 0.7
of the capacity for latency, 3 times the capacity for overload.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

PARTS = ("capacity", "latency", "overload", "slow", "drain", "memory", "fuzz")
CLIENTS = 64


def processor(pid: int | str) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- the two sides


class Server:
    """`heedful serve` as a process."""

    def __init__(self, model: str, threads: int, *words: object) -> None:
        command = [sys.executable, "-m", "heedful", "serve", f"en-de={model}", "--port", "0", "--threads", str(threads)]
        self.process = subprocess.Popen(
            [*command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        found = re.match(r"http://127\.0\.0\.1:(\d+) ", self.process.stdout.readline())
        assert found, "the server did not start"
        self.port = int(found[1])

    def memory(self) -> float:
        """Resident megabytes of the server and its model."""
        pids = [
            self.process.pid,
            *Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split(),
        ]
        status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        return sum(int(found[1]) for text in status if (found := re.search(r"VmRSS:\s+(\d+)", text))) / 1024

    def work(self) -> tuple[float, float]:
        """Processor seconds of the server so far, and of its model."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return processor(self.process.pid), sum(map(processor, children))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()


class File:
    """What `heedful translate` does with a file, in a process that has loaded the model: seconds for these lines."""

    CODE = (
        "import sys, time, torch; torch.set_num_threads(int(sys.argv[2]))\n"
        "from heedful.cli.streams import open_translator; from pathlib import Path\n"
        "translator = open_translator([Path(sys.argv[1])])\n"
        "for path in sys.stdin:\n"
        "    lines = Path(path.strip()).read_text(encoding='utf-8').splitlines()\n"
        "    began = time.perf_counter(); n = sum(1 for _ in translator.stream(lines))\n"
        "    print(n / (time.perf_counter() - began), flush=True)\n"
    )

    def __init__(self, model: str, threads: int) -> None:
        command = [sys.executable, "-c", self.CODE, model, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self, path: Path) -> float:
        assert self.process.stdin and self.process.stdout
        print(path, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()


# ---- clients


class Connection:
    """One kept connection, from an address of its own, so that limits of an address do not speak for all."""

    def __init__(self, port: int, number: int = 0) -> None:
        self.port, self.address = port, f"127.0.{1 + number // 200 % 200}.{1 + number % 200}"
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, body: dict | None = None) -> tuple[int, bytes]:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self.port, local_addr=(self.address, 0)
            )
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{'POST' if body is not None else 'GET'} {path} HTTP/1.1\r\nhost: x\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        assert self.reader is not None
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(re.search(rb"content-length: (\d+)", answer)[1])  # type: ignore[index]
        content = await self.reader.readexactly(length)
        if b"connection: close" in answer:
            self.close()
        return int(answer[9:12]), content

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def request(line: str, **more: object) -> dict:
    return {"q": line, "source": "en", "target": "de", **more}


async def closed_loop(port: int, lines: list[str], clients: int = CLIENTS) -> float:
    """So many clients, each one sentence after the other: sentences a second."""
    rest = iter(lines)

    async def client(number: int) -> None:
        connection = Connection(port, number)
        for line in rest:
            status, content = await connection.ask("/translate", request(line))
            assert status == 200, content
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return len(lines) / (time.perf_counter() - began)


@dataclass
class Load:
    """What came of requests sent at a rate."""

    good: list[float] = field(default_factory=list)  # seconds of answers with 200
    refused: list[float] = field(default_factory=list)  # seconds of answers with 503
    other: list[object] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def open_loop(port: int, lines: list[str], rate: float, seconds: float, seed: int = 1) -> Load:
    """Requests at random times, whether answers come or not; beside them somebody asks for /health."""
    load, free, tasks, chance = Load(), [], set(), random.Random(seed)
    numbers = iter(range(10**9))

    async def one(line: str) -> None:
        connection = free.pop() if free else Connection(port, next(numbers))
        began = time.perf_counter()
        try:
            status, _ = await connection.ask("/translate", request(line))
            took = time.perf_counter() - began
            {200: load.good, 503: load.refused}.get(status, load.other).append(took)
            free.append(connection)
        except (OSError, asyncio.IncompleteReadError) as error:
            load.other.append(repr(error))
            connection.close()

    async def healthy() -> None:
        connection = Connection(port, 39_999)
        while True:
            began = time.perf_counter()
            await connection.ask("/health")
            load.health.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)

    watching = asyncio.ensure_future(healthy())
    began = due = time.perf_counter()
    while due < began + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.ensure_future(one(chance.choice(lines)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += chance.expovariate(rate)
    await asyncio.gather(*tasks)
    load.seconds = time.perf_counter() - began
    watching.cancel()
    for connection in free:
        connection.close()
    return load


def ms(values: list[float], *percents: float) -> str:
    ordered = sorted(values) or [float("nan")]
    shown = [f"p{p:g} {1000 * ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))]:.1f}" for p in percents]
    return ", ".join([*shown, f"max {1000 * ordered[-1]:.1f} ms"])


# ---- the parts


def capacity(server: Server, model: str, lines: list[str], rounds: int, threads: int) -> float:
    path = Path(f"/tmp/heedful-serving-{os.getpid()}.txt")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    file, ratios, rates, works = File(model, threads), [], [], []
    try:
        file.rate(path)
        asyncio.run(closed_loop(server.port, lines))
        for number in range(rounds):
            began, (http, model_began) = processor(file.process.pid), server.work()
            alone, served, after = file.rate(path), asyncio.run(closed_loop(server.port, lines)), file.rate(path)
            alone_work = (processor(file.process.pid) - began) / 2
            http, model_work = server.work()[0] - http, server.work()[1] - model_began
            ratios.append(served / ((alone + after) / 2))
            works.append(alone_work / model_work)
            rates.append(served)
            each = [f"{1000 * seconds / len(lines):.2f}" for seconds in (alone_work, model_work, http)]
            print(
                f"  round {number + 1}: file {alone:.1f} and {after:.1f}/s, {CLIENTS} clients {served:.1f}/s, ratio "
                f"{ratios[-1]:.2f}; processor ms a sentence: file {each[0]}, served {each[1]} and {each[2]} for HTTP, "
                f"ratio {works[-1]:.2f}",
                flush=True,
            )
    finally:
        file.end()
        path.unlink()
    for name, values in (("sentences a second", ratios), ("processor seconds of the model", works)):
        spread = f"({min(values):.2f} to {max(values):.2f})"
        print(f"served to file, by {name}: median {statistics.median(values):.2f} {spread}")
    print(f"capacity: {statistics.median(rates):.1f} sentences/s")
    return statistics.median(rates)


def latency(server: Server, lines: list[str], rate: float, seconds: float) -> None:
    async def lone() -> list[float]:
        connection, took = Connection(server.port), []
        for line in lines[:30]:
            began = time.perf_counter()
            await connection.ask("/translate", request(line))
            took.append(time.perf_counter() - began)
        connection.close()
        return took

    print(f"lone requests: {ms(asyncio.run(lone()), 50)}")
    load = asyncio.run(open_loop(server.port, lines, 0.7 * rate, seconds))
    print(f"at 0.7 of capacity ({0.7 * rate:.0f}/s for {seconds:g} s): {ms(load.good, 50, 99)}; "
          f"{len(load.refused)} refused, {len(load.other)} other; /health {ms(load.health, 50, 99)}")  # fmt: skip


def overload(server: Server, lines: list[str], rate: float, seconds: float) -> None:
    load = asyncio.run(open_loop(server.port, lines, 3 * rate, seconds))
    goodput = len(load.good) / load.seconds
    print(f"at 3 x capacity ({3 * rate:.0f}/s for {seconds:g} s): goodput {goodput:.1f}/s, {goodput / rate:.2f} of"
          f" capacity; answers {ms(load.good, 50, 99)}; {len(load.refused)} refused after {ms(load.refused, 50, 99)}; "
          f"{len(load.other)} other; /health {ms(load.health, 50, 99)}")  # fmt: skip


def slow(server: Server, lines: list[str], count: int = 200) -> None:
    """Clients that send a byte a second, from one address and from many, beside one that is in no hurry to be slow."""

    async def measure() -> None:
        opened = []
        for number in range(count):
            address = "127.0.0.9" if number % 2 else f"127.0.9.{1 + number}"
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
            writer.write(b"POST /translate HTTP/1.1\r\n")
            opened.append((reader, writer))

        async def drip() -> None:
            while True:
                for _, writer in opened:
                    if not writer.is_closing():
                        writer.write(b"x")
                await asyncio.sleep(1)

        dripping, connection, took = asyncio.ensure_future(drip()), Connection(server.port), []
        for line in lines[:60]:
            began = time.perf_counter()
            status, _ = await connection.ask("/translate", request(line))
            assert status == 200
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.wait({asyncio.ensure_future(reader.read()) for reader, _ in opened}, timeout=30)
        dripping.cancel()
        gone = sum(reader.at_eof() or reader.exception() is not None for reader, _ in opened)
        print(f"beside {count} slow clients: {ms(took, 50, 99)}; {gone} of them were sent away "
              f"within {time.perf_counter() - began:.0f} s")  # fmt: skip
        for _, writer in opened:
            writer.close()

    asyncio.run(measure())


def drain(model: str, lines: list[str], times: int, threads: int) -> None:
    lost = answered = 0
    spans = []
    for number in range(times):
        server = Server(model, threads, "--drain", 20)

        async def load(server: Server = server) -> tuple[int, list[object]]:
            good, bad = 0, []

            async def client(n: int) -> None:
                nonlocal good
                connection = Connection(server.port, n)
                while True:
                    try:
                        status, _ = await connection.ask("/translate", request(random.choice(lines)))
                        good += status == 200
                        if status != 200:
                            bad.append(status)
                    except ConnectionRefusedError:
                        return
                    except (OSError, asyncio.IncompleteReadError) as error:
                        bad.append(repr(error))
                        return

            clients = asyncio.gather(*(client(n) for n in range(32)))
            await asyncio.sleep(1.0 + random.random())
            began = time.perf_counter()
            server.process.send_signal(signal.SIGTERM)
            await clients
            await asyncio.to_thread(server.process.wait, 30)
            spans.append(time.perf_counter() - began)
            return good, bad

        good, bad = asyncio.run(load())
        answered, lost = answered + good, lost + bool(bad) + (server.process.returncode != 0)
        if bad:
            print(f"  drain {number + 1} lost {bad[:3]}")
    print(f"drained under load: {times - lost} of {times} without a loss ({answered} answers), "
          f"the longest took {max(spans):.1f} s")  # fmt: skip


def memory(server: Server, lines: list[str], count: int = 20_000) -> None:
    asyncio.run(closed_loop(server.port, lines[:300]))
    before = server.memory()
    short = sorted(lines, key=len)[: max(1, len(lines) // 10)]
    asyncio.run(closed_loop(server.port, [short[number % len(short)] for number in range(count // 2)]))
    middle = server.memory()
    asyncio.run(closed_loop(server.port, [short[number % len(short)] for number in range(count - count // 2)]))
    print(f"memory: {before:.0f} MB before, {middle:.0f} MB after {count // 2:,} and {server.memory():.0f} MB after "
          f"{count:,} requests")  # fmt: skip


def fuzz(server: Server, count: int) -> None:
    """Requests made from our own description by schemathesis."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    url, statuses = f"http://127.0.0.1:{server.port}", []
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    for operation in operations:
        for kind in schemathesis.GenerationMode:

            @settings(max_examples=max(1, count // len(operations) // 2), deadline=None, database=None,
                      phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=kind))
            def send(case) -> None:
                statuses.append(case.call(base_url=url, timeout=60).status_code)

            try:
                send()
            except Exception as error:  # nothing wrong can be made for a route without input
                if type(error).__name__ not in ("Unsatisfiable", "Unsatisfied", "InvalidArgument"):
                    raise
    table = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"schemathesis: {len(statuses):,} requests, {statuses.count(500)} answers of 500; all answers {table}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("lines", type=Path, help="sentences, one a line")
    parser.add_argument("--parts", default=",".join(PARTS[:5]), help=f"of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--drains", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000, help="of schemathesis")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0, help="the capacity, if it is known")
    given = parser.parse_args()
    parts = given.parts.split(",")
    lines = [line for line in given.lines.read_text(encoding="utf-8").splitlines() if line.strip()]
    server = Server(given.model, given.threads)
    try:
        rate = given.rate
        if "capacity" in parts:
            rate = capacity(server, given.model, lines, given.rounds, given.threads)
        if {"latency", "overload"} & set(parts) and not rate:
            rate = asyncio.run(closed_loop(server.port, lines))
        if "latency" in parts:
            latency(server, lines, rate, given.seconds)
        if "overload" in parts:
            overload(server, lines, rate, given.seconds)
        if "slow" in parts:
            slow(server, lines)
        if "memory" in parts:
            memory(server, lines)
        if "fuzz" in parts:
            fuzz(server, given.requests)
    finally:
        server.end()
    if "drain" in parts:
        drain(given.model, lines, given.drains, given.threads)


if __name__ == "__main__":
    main()
