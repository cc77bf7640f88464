"""How `heedful serve` holds under load, beside `heedful translate` on a file: on loopback, and bounded.

    python benchmarks/serving.py runs/demo/model runs/demo/data/test.en
    python benchmarks/serving.py runs/demo/model runs/demo/data/test.en --size base --seconds 20
    python benchmarks/serving.py MODEL LINES --parts drain --drains 50

`--size base` serves a random model of the paper's base size with the vocabulary of the given one, whose translations
are about as long as their sources.

Capacity alternates rounds of 64 clients that each send one sentence after the other, over a connection that is kept,
with rounds of the same lines as a file, and prints their ratio: of sentences a second, and of processor seconds that a
sentence took, of the model, of the whole server and with the clients, which run on the same cores; these say more when
other programs want the processors too. Both sides have the threads that they have by default, all cores. The other
parts send at a rate, whether answers come or not: 0.7 of the capacity for latency, 3 times the capacity for overload.
Latencies are those that clients see; clients are processes of their own on the same cores, so beside them stand those
that the server has in its log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import load

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
        self.log = tempfile.NamedTemporaryFile("r", encoding="utf-8")  # noqa: SIM115
        with Path(self.log.name).open("wb") as log:
            self.process = subprocess.Popen([*command, *map(str, words)], stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        result = re.match(r"http://127\.0\.0\.1:(\d+) ", self.process.stdout.readline())
        assert result, "the server did not start"
        self.port = int(result[1])

    def children(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def memory(self) -> float:
        """Resident megabytes of the server and its model."""
        status = [Path(f"/proc/{pid}/status").read_text() for pid in [self.process.pid, *self.children()]]
        return sum(int(result[1]) for text in status if (result := re.search(r"VmRSS:\s+(\d+)", text))) / 1024

    def work(self) -> tuple[float, float]:
        """Processor seconds of the server so far, and of its model."""
        return processor(self.process.pid), sum(map(processor, self.children()))

    def took(self) -> dict[tuple[str, int], list[float]]:
        """What the log has had to say of requests since it was last asked: their seconds by route and status."""
        result: dict[tuple[str, int], list[float]] = {}
        for line in self.log:
            message = json.loads(line)
            if message["event"] == "request":
                result.setdefault((message["route"], message["status"]), []).append(message["ms"] / 1000)
        return result

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()


class File:
    """What `heedful translate` does with a file, in a process that has loaded the model: seconds for these lines."""

    CODE = (
        "import sys, time; from pathlib import Path; from heedful.cli.open_models import open_translator\n"
        "from heedful.cli.options import Compute\n"
        "translator = open_translator([Path(sys.argv[1])], Compute(threads=int(sys.argv[2])))\n"
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


def base_model(model: str, folder: Path) -> str:
    """A random model of the paper's base size with this one's vocabulary -> its folder."""
    import torch

    from heedful.config import ModelConfig, SearchSettings
    from heedful.model.transformer import build_model
    from heedful.storage.folder import ModelFolder, load_folder, save_folder

    opened, size = (
        load_folder(model),
        {"d_model": 512, "d_ff": 2048, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    )
    torch.manual_seed(1)
    random = build_model(ModelConfig(**opened.config.model_dump() | size)).eval()
    search = SearchSettings(max_extra=0)  # it has not learned where to end
    save_folder(ModelFolder(random, opened.tokenizer, opened.source_tokenizer, search, folder))
    return str(folder)


# ---- the parts


class Benchmark:
    """A model, lines to translate, and processes that clients run in."""

    def __init__(self, model: str, lines: list[str], threads: int, clients: ProcessPoolExecutor) -> None:
        self.model, self.lines, self.threads, self.clients = model, lines, threads, clients
        self.requests = [load.request(line) for line in lines]

    def closed(self, server: Server, requests: list[bytes]) -> tuple[float, load.Load]:
        """Requests a second of 64 clients, and what came of them."""
        result = self.clients.submit(load.closed, server.port, requests, CLIENTS).result()
        assert len(result.of(200)) == len(requests), (result.answers.keys(), result.problems[:3])
        return len(requests) / result.seconds, result

    def capacity(self, server: Server, rounds: int) -> float:
        file, ratios, rates, works = File(self.model, self.threads), [], [], list[list[float]]()
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as text:
            text.write("".join(f"{line}\n" for line in self.lines))
            text.flush()
            try:
                file.rate(Path(text.name))
                self.closed(server, self.requests)
                for number in range(rounds):
                    began, (http, model) = processor(file.process.pid), server.work()
                    alone = file.rate(Path(text.name))
                    served, result = self.closed(server, self.requests)
                    after = file.rate(Path(text.name))
                    ms = [1000 / len(self.lines) * seconds for seconds in (
                        (processor(file.process.pid) - began) / 2, server.work()[1] - model,
                        server.work()[0] - http, result.processor)]  # fmt: skip
                    ratios.append(served / ((alone + after) / 2))
                    works.append(ms)
                    rates.append(served)
                    print(
                        f"  round {number + 1}: file {alone:.1f} and {after:.1f}/s, {CLIENTS} clients {served:.1f}/s, "
                        f"ratio {ratios[-1]:.2f}; processor ms a sentence: file {ms[0]:.2f}, served {ms[1]:.2f} "
                        f"and {ms[2]:.2f} for HTTP (clients {ms[3]:.2f}), ratio {ms[0] / sum(ms[1:3]):.2f}",
                        flush=True,
                    )
            finally:
                file.end()
        took = [[work[0] / sum(work[1:end]) for work in works] for end in (2, 3, 4)]
        names = (
            "sentences a second",
            "processor seconds of the model",
            "those of the whole server",
            "those of all",
        )
        for name, values in zip(names, [ratios, *took], strict=True):
            spread = f"({min(values):.2f} to {max(values):.2f})"
            print(f"served to file, by {name}: median {statistics.median(values):.2f} {spread}")
        print(f"capacity: {statistics.median(rates):.1f} sentences/s")
        return statistics.median(rates)

    def latency(self, server: Server, rate: float, seconds: float) -> None:
        lone = self.clients.submit(load.closed, server.port, self.requests[:30], 1).result()
        print(f"lone requests: {ms(lone.of(200), 50)}")
        print(f"at 0.7 of capacity ({0.7 * rate:.0f}/s for {seconds:g} s):")
        self.opened(server, 0.7 * rate, seconds)

    def overload(self, server: Server, seconds: float, rounds: int) -> None:
        """Beside the capacity just before and after, which is not always the same."""
        ratios = []
        for _ in range(rounds):
            before, _ = self.closed(server, self.requests)
            print(f"at 3 x capacity ({3 * before:.0f}/s for {seconds:g} s):")
            result = self.opened(server, 3 * before, seconds)
            after, _ = self.closed(server, self.requests)
            goodput, best = len(result.of(200)) / result.seconds, (before + after) / 2
            ratios.append(goodput / best)
            print(f"  goodput {goodput:.1f}/s, {ratios[-1]:.2f} of {best:.1f}/s")
        print(
            f"goodput: median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the capacity"
        )

    def opened(self, server: Server, rate: float, seconds: float) -> load.Load:
        """Requests at a rate, beside somebody who asks for /health."""
        server.took()
        arguments = self.clients.submit(load.opened, server.port, self.requests, rate, seconds)
        health = self.clients.submit(load.health, server.port, seconds)
        result = arguments.result()
        for status, took in sorted(result.answers.items()):
            print(f"  {len(took)} answers of {status}: {ms(took, 50, 99)}")
        print(f"  /health: {ms(health.result(), 50, 99)}")
        for (route, status), took in sorted(server.took().items()):
            print(f"  by the server's log, {route} {status}: {ms(took, 50, 99)}")
        print(f"  {len(result.problems)} other; clients took {100 * result.processor / result.seconds:.0f} % of a core")
        return result

    def slow(self, server: Server, count: int = 200) -> None:
        """Clients that send a byte of their body a second, from one address and from many, beside a usual one."""
        result, gone, seconds = self.clients.submit(load.slow, server.port, count, self.requests[:60], 30).result()
        assert len(result.of(200)) == 60, result.problems
        print(f"beside {count} slow clients: {ms(result.of(200), 50, 99)}; {gone} of them were sent away within "
              f"{seconds:.0f} s")  # fmt: skip

    def drain(self, times: int) -> None:
        lost = answered = 0
        spans = []
        for number in range(times):
            server = Server(self.model, self.threads, "--drain", 20)
            endless = random.choices(self.requests, k=50_000)
            arguments = self.clients.submit(load.closed, server.port, endless, 32)
            time.sleep(1.0 + random.random())
            began = time.perf_counter()
            server.process.send_signal(signal.SIGTERM)
            result = arguments.result()
            server.process.wait(30)
            spans.append(time.perf_counter() - began)
            bad = [*result.problems, *(status for status in result.answers if status != 200)]
            bad += [f"ended with {server.process.returncode}"] if server.process.returncode else []
            answered, lost = answered + len(result.of(200)), lost + bool(bad)
            if bad:
                print(f"  drain {number + 1} lost {bad[:3]}", flush=True)
        print(f"drained under load: {times - lost} of {times} without a loss ({answered:,} answers), "
              f"the longest took {max(spans):.1f} s")  # fmt: skip

    def memory(self, server: Server, count: int = 20_000) -> None:
        self.closed(server, self.requests[:300])
        before, halves = server.memory(), []
        short = sorted(self.requests, key=len)[: max(1, len(self.requests) // 10)]
        for _ in range(2):
            self.closed(server, list(itertools.islice(itertools.cycle(short), count // 2)))
            halves.append(server.memory())
        print(f"memory: {before:.0f} MB before, {halves[0]:.0f} MB after {count // 2:,} and {halves[1]:.0f} MB after "
              f"{count:,} requests")  # fmt: skip


def ms(values: list[float], *percents: float) -> str:
    ordered = sorted(values) or [float("nan")]
    shown = [f"p{p:g} {1000 * ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))]:.1f}" for p in percents]
    return ", ".join([*shown, f"max {1000 * ordered[-1]:.1f} ms"])


def fuzz(server: Server, count: int) -> None:
    """Requests made from our own description by schemathesis."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    url, statuses = f"http://127.0.0.1:{server.port}", []
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [get_all_operation.ok() for get_all_operation in schema.get_all_operations()]
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
    parser.add_argument("--size", choices=("own", "base"), default="own")
    parser.add_argument("--parts", default=",".join(PARTS[:5]), help=f"of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--drains", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000, help="of schemathesis")
    parser.add_argument("--threads", type=int, default=0, help="of the model, on both sides; 0 for all cores")
    parser.add_argument("--rate", type=float, default=0, help="the capacity, if it is known")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    lines = [line for line in arguments.lines.read_text(encoding="utf-8").splitlines() if line.strip()]
    with (
        ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as clients,
        tempfile.TemporaryDirectory() as scratch,
    ):
        model = base_model(arguments.model, Path(scratch) / "base") if arguments.size == "base" else arguments.model
        run(Benchmark(model, lines, arguments.threads, clients), parts, arguments)


def run(benchmark: Benchmark, parts: list[str], arguments: argparse.Namespace) -> None:
    if set(parts) - {"drain"}:
        server = Server(benchmark.model, benchmark.threads)
        try:
            rate = arguments.rate
            if "capacity" in parts:
                rate = benchmark.capacity(server, arguments.rounds)
            if "latency" in parts and not rate:
                rate, _ = benchmark.closed(server, benchmark.requests)
            if "latency" in parts:
                benchmark.latency(server, rate, arguments.seconds)
            if "overload" in parts:
                benchmark.overload(server, arguments.seconds, arguments.rounds)
            if "slow" in parts:
                benchmark.slow(server)
            if "memory" in parts:
                benchmark.memory(server)
            if "fuzz" in parts:
                fuzz(server, arguments.requests)
        finally:
            server.end()
    if "drain" in parts:
        benchmark.drain(arguments.drains)


if __name__ == "__main__":
    main()
