"""Several nodes on one machine: network namespaces joined by a bridge, each with a name, an address, a /dev/shm and a mount of a GlusterFS
volume of its own. Wants root and Debian's GlusterFS.

Everything is made in a *sandbox*: a process in namespaces of its own for processes, mounts, networks and names. When that process
ends, for whatever reason, the kernel ends all daemons, mounts and networks with it. Nothing of it is ever seen outside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support import jobs, processes

SANDBOX = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--uts", "--ipc")
SUBNET = "10.77.0"
HEAD = "head"
VOLUME = "store"
SECONDS = 60  # for a daemon or a mount to be ready
# Program -> Debian's package of it. Where they are missing, `make test-all` installs them if it runs as root (tools/system.py).
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "glusterd": "glusterfs-server",
    "mount.glusterfs": "glusterfs-client",
}
_DAEMON_FOLDERS = ("/var/lib/glusterd", "/var/log/glusterfs")


def environment() -> dict[str, str]:
    """As of any job; the programs of the system's administration are found too."""
    own = jobs.environment()
    return {**own, "PATH": f"{own['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"}


def lacks() -> str:
    """Why there can be no sandbox here; "" if there can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces and mounts"
    path = environment()["PATH"]
    absent = sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})
    if absent:
        return f"needs the packages {' '.join(absent)}"
    if not Path("/dev/fuse").exists():
        return "needs /dev/fuse"
    done = subprocess.run([*SANDBOX, "true"], capture_output=True, text=True)
    return f"namespaces are not to be had: {done.stderr.strip()}" if done.returncode else ""


class Cluster:
    """Nodes 1 to ``nodes``. Made inside a sandbox, by its first process, and ended with it. ``store``: the path at which each node, and
    the process itself, has mounted the volume."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._folder, self.store = folder, folder / "store"
        self._names = [f"node{n}" for n in range(1, nodes + 1)]
        self._private_places()
        self._network()
        self._volume()
        for name in self._names:
            self.boot(name)
        self._mount(self.store)
        self._agent()

    def boot(self, name: str) -> None:
        """Gives a node empty memory and a mount of the volume; its processes were ended before, if it has run."""
        memory, store = self._of(name, "memory"), self._of(name, "store")
        for place in (memory, store):
            subprocess.run(["umount", "--lazy", place], capture_output=True)
            place.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", memory)
        self._mount(store, within=["nsenter", f"--net=/run/netns/{name}"])

    def kill(self, name: str) -> None:
        """Ends all processes of a node at once, its file system's client too."""
        for pid in run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    @contextlib.contextmanager
    def job(self, nodes: Sequence[str], script: object, *args: object) -> Iterator[jobs.Job]:
        """A job with one rank on each of these nodes. At the end of the block all that is left of it is killed."""
        output = self._folder / f"job-{time.monotonic_ns()}"
        output.mkdir()
        own = processes.wrapped([sys.executable, jobs.JOBS / str(script), *args], output=output)
        line = ["mpirun", "--prtemca", "plm_ssh_agent", self._folder / "agent"]
        line += ["--prtemca", "oob_tcp_if_include", f"{SUBNET}.0/24", "--mca", "btl_tcp_if_include", f"{SUBNET}.0/24"]
        line += [
            "--mca",
            "btl",
            "tcp,self",
            "--host",
            ",".join(f"{name}:1" for name in nodes),
            "--map-by",
            "ppr:1:node",
        ]
        with open(output / "output", "ab") as file:
            options = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            with processes.child([*line, "-np", len(nodes), *own], env=environment(), **options) as process:
                started = jobs.Job(str(script), process, output, len(nodes))
                try:
                    yield started
                except BaseException:
                    print(started.tails(), flush=True)
                    raise

    def _private_places(self) -> None:
        """What daemons write is in this cluster's folder; what they are named by is its own."""
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        Path("/run/netns").mkdir()
        run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        for place in _DAEMON_FOLDERS:
            own = self._folder / Path(place).name
            own.mkdir()
            run("mount", "--bind", own, place)
        hosts = [f"{SUBNET}.{number} {name}" for number, name in enumerate([HEAD, *self._names], 100)]
        (self._folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        run("mount", "--bind", self._folder / "hosts", "/etc/hosts")
        run("hostname", HEAD)

    def _network(self) -> None:
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "addr", "add", f"{SUBNET}.100/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        for number, name in enumerate(self._names, 101):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"to-{name}", "master", "bridge", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")

    def _volume(self) -> None:
        """Two bricks, on the machine's own disk."""
        subprocess.Popen(
            ["glusterd", "-N"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        until(lambda: subprocess.run(["gluster", "--mode=script", "pool", "list"], capture_output=True).returncode == 0)
        bricks = [f"{HEAD}:{self._folder / name}" for name in ("brick1", "brick2")]
        run("gluster", "--mode=script", "volume", "create", VOLUME, *bricks, "force")
        run("gluster", "--mode=script", "volume", "start", VOLUME)

    def _mount(self, place: Path, within: Sequence[str] = ()) -> None:
        place.mkdir(exist_ok=True)
        run(*within, "mount", "-t", "glusterfs", f"{HEAD}:/{VOLUME}", place)
        until(lambda: os.path.ismount(place))

    def _agent(self) -> None:
        """What mpirun starts in place of ssh: a command on a node."""
        agent = self._folder / "agent"
        agent.write_text(
            "#!/bin/sh\n"
            'node=$1; shift\nexec nsenter --net=/run/netns/$node unshare --uts --mount sh -c "hostname $node && '
            f"mount --bind {self._folder}/$node-memory /dev/shm && mount --bind {self._folder}/$node-store {self.store} && "
            '$*"\n'
        )
        agent.chmod(0o755)

    def _of(self, name: str, what: str) -> Path:
        return self._folder / f"{name}-{what}"


def run(*command: object) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}{done.stdout}"
    return done.stdout


def until(happened) -> None:
    """Waits for a daemon."""
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end, f"not ready after {SECONDS} s"
        time.sleep(0.1)
