"""The process that forks for each message, and the program that asks it."""

import subprocess
import sys

from shoal.federation.warm_app import ASK

WAITS = """
import sys
from shoal.federation.warm_app import wait_for_arguments
print("forked", *wait_for_arguments(sys.argv[1]), flush=True)
"""


def ask(path, *arguments):
    program = sys.executable if arguments[0] == "-c" else "/bin/false"
    return subprocess.run(
        [sys.executable, "-IS", ASK, path, program, *arguments], capture_output=True, text=True, check=False
    )


def test_each_question_gets_a_process_of_its_own(tmp_path):
    path = tmp_path / "app.sock"
    with subprocess.Popen([sys.executable, "-c", WAITS, path], stdout=subprocess.PIPE, text=True) as warm:
        while not path.exists():
            assert warm.poll() is None
        assert ask(path, "--token", "1").returncode == 0
        assert warm.stdout.readline() == "forked --token 1\n"
        assert ask(path, "--token", "2").returncode == 0
        assert warm.stdout.readline() == "forked --token 2\n"
        warm.kill()


def test_without_that_process_the_program_itself_runs(tmp_path):
    done = ask(tmp_path / "nobody", "-c", "print('itself')")
    assert (done.returncode, done.stdout) == (0, "itself\n")
