import pytest

from pyserini_ance.pipeline.grid_progress import Progress


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["finished", "finished", "waiting", "waiting"], "grid: 2 of 4 runs wait; about 3.2 minutes left"),
        # Two processes: each takes one run that waits, once the other one's run, half done, has ended.
        (["finished", "running", "waiting", "waiting"], "grid: 2 of 4 runs wait; about 2.0 minutes left"),
        (["finished", "running", "finished", "failed"], None),
    ],
)
def test_the_remaining_time_is_estimated_from_the_trained_runs(caplog, statuses, expected):
    progress = Progress(dict.fromkeys("abcd", 0))
    with caplog.at_level("INFO"):
        progress.keep("a", held_elsewhere=False)
        progress.begin("b")
        progress._start -= 96
        progress.finish("b")
        progress.estimate(statuses)
    assert caplog.messages == [
        "grid, 1 of 4: a had already finished",
        "grid, 2 of 4: b begins",
        "grid, 2 of 4: b has finished in 96 seconds",
        *([expected] if expected else []),
    ]


@pytest.mark.parametrize(("jobs", "count"), [(1, 4), (2, 2)])
def test_a_job_does_not_repeat_what_another_has_said(caplog, jobs, count):
    progress = Progress(dict.fromkeys("ab", 0), jobs)
    with caplog.at_level("INFO"):
        progress.keep("a", held_elsewhere=False)
        progress.keep("a", held_elsewhere=True)
        progress.fail("b", RuntimeError("no luck"))
        progress.fail("b", RuntimeError("no luck"), elsewhere=True)
    said = ["grid, 1 of 2: a had already finished", "grid, 2 of 2: b has failed: no luck"]
    assert list(dict.fromkeys(caplog.messages)) == said and len(caplog.messages) == count
