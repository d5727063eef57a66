"""Runs a command under a Slurm of one node that lives for as long as it: slurm.py srun -n 4 ./program

Needs root, and munged, slurmctld and slurmd beside srun. Everything of it lies in a temporary
folder; ports are the system's choice.
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

CONFIGURATION = """
ClusterName=trireme
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=100 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"slurm.py: {what} did not come within {seconds} s")
        time.sleep(0.05)


def ready(environment):
    found = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, text=True,
                           capture_output=True, timeout=20)
    return "idle" in found.stdout


def run(command, folder, started):
    host = socket.gethostname().split(".")[0]
    controller, node = free_ports(2)
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, node=node,
                                                  controller=controller))
    environment = dict(os.environ, SLURM_CONF=str(configuration))

    def start(*arguments):
        log = open(folder / (pathlib.Path(arguments[0]).name + ".out"), "w")
        started.append(subprocess.Popen(arguments, env=environment, stdout=log, stderr=log,
                                        stdin=subprocess.DEVNULL))

    start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket",
          f"--key-file={key}", f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed",
          f"--log-file={folder}/munge.log")
    wait_for("munged", (folder / "munge.socket").exists)
    start("slurmctld", "-D", "-c")
    start("slurmd", "-D", "-N", host)
    wait_for("an idle node", lambda: ready(environment))
    if pathlib.Path(command[0]).name == "sbatch":
        return run_batch(command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


def run_batch(command, environment):
    """Submits a batch job and waits for its end. (sbatch --wait looks after 2, 10 and 42 seconds.)"""
    number = subprocess.run([command[0], "--parsable", *command[1:]], env=environment, text=True,
                            stdout=subprocess.PIPE, check=True).stdout.strip()
    shown = {}

    def ended():
        line = subprocess.run(["scontrol", "show", "job", "-o", number], env=environment, text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        shown.update(field.split("=", 1) for field in line.split() if "=" in field)
        return shown["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    wait_for("the end of the batch job", ended, seconds=200)
    return 0 if shown["JobState"] == "COMPLETED" else int(shown["ExitCode"].split(":")[0]) or 1


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    started = []
    with tempfile.TemporaryDirectory(prefix="trireme-slurm-") as name:
        folder = pathlib.Path(name)
        try:
            code = run(sys.argv[1:], folder, started)
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
            for process in started:
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if os.environ.get("TRIREME_SLURM_LOGS"):
                for log in [*folder.glob("*.log"), *folder.glob("*.out")]:
                    sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')}")
    sys.exit(code)


if __name__ == "__main__":
    main()
