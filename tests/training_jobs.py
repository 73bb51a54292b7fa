"""Training jobs, worked on by several threads."""

from concurrent.futures import ThreadPoolExecutor


def finish(job, threads):
    """Train all clients of a job."""
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(job.work) for _ in range(threads)]:
            done.result()
