"""How long a change takes to reach many edges. For `edge`."""

import asyncio
import statistics
import time

from edges import Edge, decide, percentile, request, row, upstream_with


class Poller:
    """One connection to an edge."""

    def __init__(self, edge):
        self.host, self.port = edge.address.split(":")

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def ask(self, content):
        self.writer.write(content)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:")
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def until(self, content, shows, begin, pause, interval):
        """Seconds since `begin` until a response shows the change."""
        await asyncio.sleep(pause)
        while True:
            asked = time.perf_counter()
            if shows(*await self.ask(content)):
                return time.perf_counter() - begin
            await asyncio.sleep(max(0, asked + interval - time.perf_counter()))


def fanout(options, directory):
    interval = 0.05
    upstream = upstream_with(options, directory, 1_000)
    edges = [Edge(options.holdfast, f"{directory}/edge{i}.db", upstream.address) for i in range(options.edges)]
    for edge in edges:
        edge.wait_until_complete()
    asyncio.run(change(options, upstream, edges, interval))
    memory = [edge.memory() for edge in edges]
    resident, anonymous = (statistics.median(each[i] for each in memory) for i in [0, 1])
    row(f"memory of each of {len(edges)} edges", f"{resident:.0f} MiB, {anonymous:.0f} MiB of them anonymous")


async def change(options, upstream, edges, interval):
    pollers, source = [Poller(edge) for edge in edges], Poller(upstream)
    for poller in [*pollers, source]:
        await poller.open()

    async def times(kind, make):
        rounds = []
        for number in range(options.rounds):
            found = []
            for content, asked, shows in map(make, range(number * options.changes, (number + 1) * options.changes)):
                # The edges wait for news again.
                await asyncio.sleep(0.3)
                status, answer = await source.ask(content)
                if status >= 300:
                    raise SystemExit(f"the upstream: {status} {answer[:300]}")
                begin = time.perf_counter()
                found += await asyncio.wait_for(asyncio.gather(*[
                    poller.until(asked, shows, begin, interval * index / len(pollers), interval)
                    for index, poller in enumerate(pollers)]), 60)
            rounds.append([percentile(found, 0.5), percentile(found, 0.99), max(found)])
        p50, p99, longest = map(statistics.median, zip(*rounds))
        row(f"{options.changes} {kind} until each of {len(edges)} edges shows it, asked every {interval * 1000:.0f} ms",
            f"p50 {p50:.2f} s, p99 {p99:.2f} s, maximum {longest:.2f} s", "p99 < 1 s", p99 < 1)

    def override(number):
        # Of the variations 70011 and 70012 the one that the user does not have.
        other = f"7001{2 - number % 2}"
        return (request("PUT", f"/v1/profiles/user{number}/experiments/7001", {"variation_id": other}),
                request("GET", f"/v1/profiles/user{number}"), lambda _, content: f'"{other}"'.encode() in content)

    def erasure(number):
        return (request("DELETE", f"/v1/profiles/user{number}"), request("GET", f"/v1/profiles/user{number}"),
                lambda status, _: status == 404)

    def pause(number):
        status = ["paused", "running"][number % 2]
        # As imported, or nothing.
        return (request("PUT", "/v1/experiments/checkout", {"status": status}), decide("user999"),
                lambda _, content: (b'"variationKey":"new"' in content) == (status == "running"))

    await times("overrides", override)
    await times("erasures", erasure)
    await times("pauses and restarts", pause)
