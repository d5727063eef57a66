"""The programs of a table of bench/run_comm.py: ours, the yardsticks and the peers, as commands.

`programs` builds what is missing. A peer that is not there is left out, and a line says so."""
import pathlib
import shutil
import sys

import turns
from peers import oneccl

HERE = pathlib.Path(__file__).resolve().parent.parent
PEERS = ("openmpi", "mpich", "gloo", "oneccl")
HOW = {"openmpi": "Debian's openmpi-bin and libopenmpi-dev", "mpich": "Debian's mpich and libmpich-dev",
       "oneccl": oneccl.HOW, "gloo": "--python names a Python with PyTorch"}
MOST_RANKS_OF_YARDSTICK = 16
# All sizes in one start, since a start takes seconds.
SLOW_STARTERS = ("gloo",)


def build(options, target):
    """Whether the program is there, or could be built; says why not."""
    path = options.build / "bin" / target
    if options.no_build:
        why = "" if path.exists() else f"{path} does not exist, and --no-build builds nothing"
    else:
        why = turns.why_not_built(options.build, target)
    if why:
        print(why, file=sys.stderr)
    return not why


def mpirun(name, ranks):
    """Open MPI refuses root and more ranks than cores unless told; MPICH does neither."""
    program = shutil.which(f"mpirun.{name}")
    if program is None:
        return None
    if name == "mpich":
        return [program, "-np", str(ranks)] + (["-bind-to", "core"] if ranks <= turns.cores() else [])
    extra = ["--bind-to", "core"] if ranks <= turns.cores() else ["--oversubscribe"]
    return [program, "--allow-run-as-root", *extra, "-np", str(ranks)]


class Programs:
    """name -> a function from sizes (text) to a command."""

    def __init__(self, options, what, ranks, transport):
        self.options, self.what, self.ranks, self.transport = options, what, ranks, transport
        self.seconds = str(options.seconds)
        self.algorithm = ["--algorithm", options.algorithm] if options.algorithm else []
        self.found = {}
        if transport == "mpi":
            self.add_over_mpi()
        else:
            self.add_ours()
        for name in filter(None, options.peers.split(",")):
            if not getattr(self, f"add_{name}")():
                print(f"{name} cannot be measured: its column is left out ({HOW[name]})", file=sys.stderr)

    def path(self, name):
        return str(self.options.build / "bin" / name)

    def add_ours(self):
        if not build(self.options, "bench.comm"):
            sys.exit(f"bench.comm cannot be built in {self.options.build}, which tools/build.py makes")
        own = [self.path("bench.comm"), "--collective", self.what, "--ranks", str(self.ranks),
               "--seconds", self.seconds, "--transport", self.transport, *self.algorithm]
        self.found["arena"] = lambda sizes: own + sizes
        yardstick = "bench.yardstick" if self.transport == "shm" else "bench.tcp_yardstick"
        if self.transport == "shm":
            self.found["heap"] = lambda sizes: own + ["--heap"] + sizes
        elif self.ranks != 2:
            return  # that yardstick is two processes
        if self.ranks > MOST_RANKS_OF_YARDSTICK:
            return
        if self.what == "all_reduce" and build(self.options, yardstick):
            arguments = [str(self.ranks)] if self.transport == "shm" else []
            self.found["yard"] = lambda sizes: [self.path(yardstick), *arguments, self.seconds, *sizes]

    def add_over_mpi(self):
        """Trireme over libtrireme_mpi, under either mpirun."""
        if not build(self.options, "trireme"):
            sys.exit(f"trireme cannot be built in {self.options.build}, which tools/build.py makes")
        for name in ("openmpi", "mpich"):
            run = mpirun(name, self.ranks)
            if run:
                own = [*run, self.path("trireme"), "bench", "comm", self.what, "--transport", "mpi",
                       "--heap", "--json", "--seconds", self.seconds, *self.algorithm, "--sizes"]
                self.found[f"over_{name}"] = lambda sizes, own=own: own + sizes

    def add_mpi(self, name):
        run = mpirun(name, self.ranks)
        if not run or not build(self.options, f"bench.comm_{name}"):
            return False
        if self.transport == "tcp" and name == "openmpi":
            run += ["--mca", "btl", "tcp,self"]
        self.found[name] = lambda sizes: [*run, self.path(f"bench.comm_{name}"), self.what,
                                          self.seconds, *sizes]
        return True

    def add_openmpi(self):
        return self.add_mpi("openmpi")

    def add_mpich(self):
        return self.transport == "tcp" or self.add_mpi("mpich")  # no tcp in Debian's alone

    def add_gloo(self):
        if self.transport == "mpi":
            return True
        if not turns.has_module(self.options.python, "torch.distributed"):
            return False
        self.found["gloo"] = lambda sizes: [self.options.python, str(HERE / "peers" / "gloo.py"),
                                            self.what, str(self.ranks), self.seconds, *sizes]
        return True

    def add_oneccl(self):
        if self.transport != "shm" or self.what in ("gather", "scatter"):
            return True  # it has none
        program, folder = self.options.build / "bin" / "bench.comm_oneccl", self.options.oneccl
        if self.options.no_build and not program.exists() or not oneccl.build(folder, program):
            return False
        self.found["oneccl"] = lambda sizes: oneccl.command(folder, program, self.what, self.ranks,
                                                            self.seconds, sizes)
        return True
