"""What breaks first at 100 million images: the driver's cost of a task is measured, the rest of the run is simulated.

The simulated driver is one server: it takes results one by one and hands out the next shard; a worker whose next shard
is not there yet is idle. Usage: python -m benchmarks.scale
"""

import heapq
import os
import random
import time
from dataclasses import dataclass

from dataset_packaging.config import read_runtime
from dataset_packaging.packing.executor import Executor, ray_executor

IMAGES = 100_000_000
ROWS_PER_SHARD = 1000
MEGAPIXELS_PER_IMAGE = 2.5
MEGAPIXELS_PER_CPU_S = 190.0
"""Of our job on the benchmark corpus, writing included."""

SHARD_OVERHEAD_S = 0.05
"""Of a shard on S3: its last part, facts and receipt, one request after the other."""

_NO_OP_TASKS = 1500
_SIMULATED_SHARDS = 20_000


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulated run."""

    workers: int
    hours: float
    shards_per_s: float
    driver_busy: float
    workers_busy: float


def do_nothing(number: int) -> int:
    """Returns its argument: what is measured is the way there and back."""
    return number


def measure_driver_s(executor: Executor, in_flight: int) -> float:
    """Returns the driver's CPU time for one task that does nothing, with so many in flight."""
    tasks = _NO_OP_TASKS + in_flight
    began = time.process_time()
    for _ in executor.map(do_nothing, range(tasks), max_in_flight=in_flight):
        pass
    return (time.process_time() - began) / tasks


def simulate(workers: int, driver_s: float, seed: int = 1) -> Simulated:
    """Runs the first shards of a dataset on a simulated cluster and extends the rate to all of them."""
    chance = random.Random(seed)
    mean_s = ROWS_PER_SHARD * MEGAPIXELS_PER_IMAGE / MEGAPIXELS_PER_CPU_S + SHARD_OVERHEAD_S
    ends: list[float] = []
    clock = driver_busy_s = work_s = 0.0
    shards = max(_SIMULATED_SHARDS, 50 * workers)
    for number in range(shards):
        if number >= workers:
            clock = max(clock, heapq.heappop(ends))
        clock += driver_s
        driver_busy_s += driver_s
        cost_s = mean_s * chance.lognormvariate(-0.125, 0.5)
        work_s += cost_s
        heapq.heappush(ends, clock + cost_s)
    last = max(ends)
    total = IMAGES // ROWS_PER_SHARD
    rate = shards / last
    return Simulated(workers, total / rate / 3600, rate, driver_busy_s / last, work_s / (last * workers))


def main() -> None:
    """Prints the table."""
    print("| workers | driver, ms per task | hours for 100 M images | shards/s | driver busy | workers busy |")
    print("|---|---|---|---|---|---|")
    with ray_executor(read_runtime(os.environ)) as executor:
        list(executor.map(do_nothing, range(50)))
        for workers in (10, 50, 200, 1000, 5000):
            driver_s = measure_driver_s(executor, min(workers, 1000) + 1)
            run = simulate(workers, driver_s)
            times = f"{driver_s * 1000:.2f} | {run.hours:.2f} | {run.shards_per_s:.1f}"
            print(f"| {workers:,} | {times} | {run.driver_busy:.1%} | {run.workers_busy:.1%} |")


if __name__ == "__main__":
    main()
