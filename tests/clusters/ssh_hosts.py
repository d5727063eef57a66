#!/usr/bin/env python3
"""Runs a command while two hosts, node07 and node08, can be reached by `ssh`.

  ssh_hosts.py COMMAND...

The hosts are network namespaces with names of their own, each with an sshd; a bridge joins them with this
host. The command finds an `ssh` in its PATH that knows their addresses and keys, and whose sessions begin
in the folder in which this was started. On node08 the folder `hidden` of the object is another one. Needs
root, iproute2, openssh-client and openssh-server.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SERVER = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
MaxStartups 100
# So that bash does not read the user's .bashrc, as it does under sshd.
SetEnv SHLVL=2
ForceCommand cd '{place}' && eval "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """
Host {name}
  HostName {address}
"""
FOR_ALL = """
Host *
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  LogLevel ERROR
"""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class SshHosts:
    """The hosts, while the object is used by `with`."""

    NAMES = ("node07", "node08")

    def __init__(self, place):
        self.place = pathlib.Path(place)
        self.prefix = f"tr{os.getpid()}"
        self.network = f"10.{100 + os.getpid() // 250 % 60}.{os.getpid() % 250}"
        self.folder = None
        self.servers = []

    def namespace(self, name):
        return self.prefix + name

    def address(self, name):
        return f"{self.network}.{int(name[-2:])}"

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-ssh-"))
        try:
            (self.folder / "hidden").mkdir()
            self.make_keys()
            self.make_network()
            for name in self.NAMES:
                self.start_server(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_keys(self):
        for name in ("key", "host_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        public = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        known = [f"{self.address(name)} {public}" for name in self.NAMES]
        (self.folder / "known_hosts").write_text("\n".join(known) + "\n")
        hosts = "".join(CLIENT.format(name=name, address=self.address(name)) for name in self.NAMES)
        (self.folder / "config").write_text(hosts + FOR_ALL.format(folder=self.folder))
        (self.folder / "bin").mkdir()
        wrapper = self.folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        wrapper.chmod(0o755)

    def cable(self, name):
        return f"{self.prefix}{name[-2:]}"

    def cut(self, name):
        """From now on no packet reaches the host or comes from it, as if its cable were cut."""
        run("ip", "link", "set", self.cable(name), "down")

    def mend(self, name):
        run("ip", "link", "set", self.cable(name), "up")

    def make_network(self):
        bridge = self.prefix
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.network}.1/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        names = "127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.NAMES)
        for name in self.NAMES:
            space, cable = self.namespace(name), self.cable(name)
            hosts = pathlib.Path("/etc/netns") / space   # `ip netns exec` shows it as /etc/hosts
            hosts.mkdir(parents=True)
            (hosts / "hosts").write_text(names)
            run("ip", "netns", "add", space)
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", cable, "master", bridge, "up")
            run("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")

    def start_server(self, name):
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        configuration = self.folder / f"sshd-{name}"
        configuration.write_text(SERVER.format(address=self.address(name), folder=self.folder,
                                               place=self.place))
        hide = f"mount -t tmpfs none {self.folder}/hidden && " if name == self.NAMES[-1] else ""
        script = f"{hide}hostname {name} && exec {shutil.which('sshd', path='/usr/sbin:/sbin')} -D -e -f {configuration}"
        with open(self.folder / f"{name}.log", "w") as log:
            self.servers.append(subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(name), "unshare", "-u", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        end = time.monotonic() + 30
        while subprocess.run([str(self.folder / "bin" / "ssh"), "-o", "BatchMode=yes", name, "true"],
                             stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            if time.monotonic() > end or self.servers[-1].poll() is not None:
                raise SystemExit(f"ssh_hosts.py: sshd on {name} does not answer:\n"
                                 + (self.folder / f"{name}.log").read_text())
            time.sleep(0.05)

    def environment(self):
        """For a command that is to find `ssh`."""
        return dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}")

    def processes(self, name):
        """Numbers of the processes on a host, without its sshd."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace(name)], text=True,
                               stdout=subprocess.PIPE, check=True).stdout.split()
        def is_server(number):
            try:
                return pathlib.Path(f"/proc/{number}/comm").read_text().strip() == "sshd"
            except OSError:
                return True   # it has ended
        return [int(number) for number in found if not is_server(number)]

    def __exit__(self, *_):
        for name in self.NAMES:
            space = self.namespace(name)
            subprocess.run(f"ip netns pids {space} | xargs -r kill -9; ip netns del {space}", shell=True,
                           check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            shutil.rmtree(f"/etc/netns/{space}", ignore_errors=True)
        for server in self.servers:
            server.wait()
        subprocess.run(["ip", "link", "del", self.prefix], check=False, stderr=subprocess.DEVNULL)
        try:
            pathlib.Path("/etc/netns").rmdir()
        except OSError:   # others use it
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    with SshHosts(os.getcwd()) as those:
        code = subprocess.run(sys.argv[1:], env=those.environment(), check=False).returncode
    sys.exit(code)
