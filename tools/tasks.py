"""Runs named tasks within a time, keeps what they found, and goes on where an earlier call stopped.

A task is a few commands, or a Python function, and belongs to a stage. Its output goes to FOLDER/TASK.log;
what it found goes to FOLDER/state.json as soon as it ends. A task that the time did not allow is begun
again by the next call; one that failed is not, until its stage is asked for again.
"""
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

DONE, FAILED = "done", "failed"


class TaskError(Exception):
    """A task failed; the text says why and what to do."""


class OutOfTime(Exception):
    """The call's time is over; a task is left unfinished."""


class Busy(Exception):
    """Another program runs the tasks of this folder."""


@dataclasses.dataclass
class Task:
    stage: str
    name: str
    commands: list = ()                        # of words each; run one after the other
    read: Callable[[str], dict] = lambda output: {}  # standard output of all commands -> what was found
    environment: dict = dataclasses.field(default_factory=dict)
    seconds: float = 400                       # a command that takes longer has failed
    resumes: bool = False                      # goes on where it was killed, however often
    scratch: pathlib.Path | None = None        # a folder that the task writes, removed before and after it

    def run(self, run_command):
        self.clear()
        found = self.read("".join(run_command(command) for command in self.commands))
        self.clear()
        return found

    def clear(self):
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def end(program):
    """Ninja and `trireme train` end what they started when they are asked to; not when they are killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.communicate(timeout=5)
            return


class Tasks:
    """Of one commit, in `folder`. Each call may take `seconds`."""

    def __init__(self, folder, seconds, clock=time.monotonic):
        self.folder, self.clock = pathlib.Path(folder), clock
        self.folder.mkdir(parents=True, exist_ok=True)
        self.end, self.whole = clock() + seconds, seconds
        self.path = self.folder / "state.json"
        self.held = None
        self.load()

    def load(self):
        self.state = json.loads(self.path.read_text()) if self.path.is_file() else {}

    def lock(self):
        """Held until this process ends. Raises Busy; two programs would disturb each other's measurements and files."""
        held = open(self.folder / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = held
            self.load()   # what another call has found meanwhile
        except OSError as error:
            held.close()
            raise Busy(f"Another call works in {self.folder}. Wait for its end.") from error

    def save(self):
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(self.state, indent=1) + "\n")
        partial.rename(self.path)

    def status(self, task):
        return self.state.get(task.name, {}).get("status", "")

    def found(self, name):
        """What the task of that name found, or {}."""
        return self.state.get(name, {}).get("found", {})

    def why(self, task):
        return self.state.get(task.name, {}).get("why", "")

    def forget(self, tasks):
        for task in tasks:
            self.state.pop(task.name, None)
        self.save()

    def left(self):
        return self.end - self.clock()

    def run(self, task):
        """Runs it unless it has ended before. Raises OutOfTime."""
        if self.status(task):
            return
        began = self.clock()
        with open(self.folder / f"{task.name}.log", "w", encoding="utf-8") as log:
            try:
                found = task.run(lambda command: self.run_command(task, command, log))
                self.state[task.name] = {"status": DONE, "seconds": round(self.clock() - began, 1), "found": found}
            except TaskError as error:
                self.state[task.name] = {"status": FAILED, "why": str(error)}
            except (LookupError, TypeError, ValueError) as error:
                self.state[task.name] = {"status": FAILED, "why": f"its output cannot be read: {error!r} ({log.name})"}
        self.save()

    def run_command(self, task, command, log):
        """Its standard output. Both streams go to the log."""
        allowed = self.left()
        if allowed <= 0:
            raise OutOfTime
        limit = allowed if task.resumes else min(allowed, task.seconds, 0.9 * self.whole)
        log.write("$ " + shlex.join(map(str, command)) + "\n")
        log.flush()
        try:
            program = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=log, text=True,
                                       errors="replace", env=os.environ | task.environment, start_new_session=True)
        except OSError as error:
            raise TaskError(f"{pathlib.Path(command[0]).name} cannot be started: {error}") from error
        with program:
            try:
                output, _ = program.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                end(program)
                if limit == allowed:
                    raise OutOfTime from None
                raise TaskError(f"{pathlib.Path(command[0]).name} took more than {limit:.0f} s and was ended "
                                f"(its output: {log.name})") from None
        log.write(output)
        log.flush()
        if program.returncode != 0:
            raise TaskError(f"{pathlib.Path(command[0]).name} ended with {program.returncode}: "
                            f"{self.last_lines(task, 1)} (its output: {log.name})")
        return output

    def last_lines(self, task, count):
        """Of its log."""
        lines = (self.folder / f"{task.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line[:300] for line in [line for line in lines if line.strip()][-count:])
