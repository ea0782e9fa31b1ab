# SPDX-License-Identifier: Apache-2.0
"""What every case of scripts/nccl-check needs to run processes as emulated hosts: environment, ports,
bounded waiting, the plugin's event file, the fabric's counters and its record of fired faults."""

import glob
import importlib.util
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def make_folder():
    """A fresh folder for one run, in memory where there is such a place, with fabric/ in it."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="braid-nccl-", dir=base)
    os.mkdir(os.path.join(folder, "fabric"))
    return folder


def drop_folder(folder, keep=False):
    if keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def find_nccl():
    """Path of libnccl.so.2: BRAID_NCCL, PyTorch's package, the system's; None when there is none."""
    told = os.environ.get("BRAID_NCCL")
    if told:
        return told
    places = []
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
        places += [os.path.join(p, "lib") for p in (spec.submodule_search_locations if spec else ())]
    except ModuleNotFoundError:
        pass
    places += ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
               "/usr/local/cuda/lib64", "/usr/local/cuda/lib",
               "/usr/local/cuda/targets/x86_64-linux/lib"]
    for place in places:
        path = os.path.join(place, "libnccl.so.2")
        if os.path.exists(path):
            return path
    return None


def has_own_failover(nccl):
    """Whether that NCCL's own transport can fail over to another port (2.29.7 and later)."""
    if nccl is None:
        return False
    with open(nccl, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b"IB_RESILIENCY_PORT_FAILOVER") >= 0


# PyTorch's flight recorder would hold a process for many seconds after it has noticed a failure.
TORCH_NO_DUMP = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
                 "TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "250"}


def failover_env(build, folder, rails):
    """NCCL's own failover works among adapters that it takes for one, which must be on PCI: a
    made-up host with all of them below one switch."""
    topo = os.path.join(folder, "host.topo")
    with open(topo, "w") as stream:
        stream.writelines(f"device fab{rail} pci=pci0000:10/0000:10:01.0/0000:11:00.0/"
                          f"0000:12:{rail:02x}.0/0000:{0x1a + rail:02x}:00.0 numa=0\n"
                          for rail in range(rails))
    return {"FABRIC_TOPO": topo, "LD_PRELOAD": os.path.join(build, "fabric", "libfabric_sysfs.so"),
            "NCCL_IB_MERGE_NICS": "1", "NCCL_NET_MERGE_LEVEL": "SYS",
            "NCCL_IB_RESILIENCY_PORT_FAILOVER": "1"}


def spin_us(ranks, rails):
    """FABRIC_SPIN_US of a case that measures: how long an engine, one a rank and rail, looks at its
    doorbell before it sleeps. Only where each has a core, and two threads of each rank (NCCL's
    proxy and the one that waits for the result) as well; the caller's own comes first."""
    has_cores = ranks * (rails + 2) <= len(os.sched_getaffinity(0))
    return os.environ.get("FABRIC_SPIN_US", "50" if has_cores else "0")


def net_env(build, net, folder, rails=4, rate=0):
    """Environment of all processes of one run, over os.environ. `net` is "braid", "ib" (NCCL's own
    transport) or "ib-failover" (the same with its port failover). `rate` is MB/s per rail, 0 for
    unlimited. `folder` is one of make_folder()."""
    env = dict(os.environ)
    libs = [os.path.join(build, "fabric"), build, env.get("LD_LIBRARY_PATH", "")]
    env.setdefault("NCCL_DEBUG", "INFO")
    env.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET")
    env.update({
        "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "0",
        "LD_LIBRARY_PATH": ":".join(part for part in libs if part),
        "FABRIC_DIR": os.path.join(folder, "fabric"),
        "FABRIC_RAILS": str(rails), "FABRIC_RATE_MBPS": str(rate),
        "BRAID_EVENT_FILE": os.path.join(folder, "events.%h.%p.jsonl"),
    })
    if net == "braid":
        env.update({"NCCL_NET_PLUGIN": "braid", "NCCL_NET": "Braid"})
    else:
        # GIN probing of 2.28 crashes on devices that are not mlx5, and merging devices without a
        # PCI path loses them. Time-outs as Braid's own, so that the failure comes as soon.
        env.update({"NCCL_NET_PLUGIN": "none", "NCCL_NET": "IB", "NCCL_GIN_TYPE": "2",
                    "NCCL_IB_MERGE_NICS": "0", "NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "6"})
    if net == "ib-failover":
        env.update(failover_env(build, folder, rails))
    return env


def rank_env(build, net, rank, world, port, folder, host=None, rails=4, rate=0):
    """Environment of one rank of a PyTorch job. `host` is the emulated host whose rails it uses
    (default: one host a rank). NCCL takes every rank for a machine of its own, so that all data goes
    over the network and ranks may share a GPU."""
    env = net_env(build, net, folder, rails, rate)
    env.update({
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "NCCL_HOSTID": f"braid-check-{rank}",
        "FABRIC_HOST": str(rank if host is None else host),
    })
    return env


def wait_all(procs, limit_s, grace_s=5):
    """Exit codes, "timeout" where the limit ran out. A process that failed ends the wait for the
    rest after a grace, as a job's launcher would. All are gone on return."""
    deadline = time.monotonic() + limit_s
    while any(proc.poll() is None for proc in procs) and time.monotonic() < deadline:
        if any(proc.poll() not in (None, 0) for proc in procs):
            deadline = min(deadline, time.monotonic() + grace_s)
        time.sleep(0.05)
    codes = ["timeout" if proc.poll() is None else proc.returncode for proc in procs]
    for proc in procs:
        if proc.poll() is None:
            proc.kill()
        proc.wait()
    return codes


def run_bounded(argv, env, limit_s, out, err):
    """Runs one command with its own process group, killed with it at the limit. Exit code or
    "timeout". `out` and `err` are paths."""
    with open(out, "w") as out_file, open(err, "w") as err_file:
        proc = subprocess.Popen(argv, env=env, stdout=out_file, stderr=err_file,
                                start_new_session=True)
        try:
            return proc.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            try:
                os.killpg(proc.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            proc.wait()


def read_lines(path):
    """The JSON lines of a file that may be missing; a torn last line is left out."""
    found = []
    if not os.path.exists(path):
        return found
    with open(path, errors="replace") as stream:
        for line in stream:
            if line.startswith("{") and line.endswith("}\n"):
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
    return found


def read_events(folder):
    """The plugin's events of all processes of a run, by time (mono_ns)."""
    events = []
    for path in glob.glob(os.path.join(folder, "events.*.jsonl")):
        events += read_lines(path)
    return sorted(events, key=lambda event: event.get("mono_ns", 0))


def read_fired(folder):
    """The fabric's record of the faults that fired: t_ns (CLOCK_MONOTONIC, as mono_ns), text, ..."""
    return read_lines(os.path.join(folder, "fabric", "fired.log"))


def read_counters(build, folder):
    """{(host, rail): (bytes sent, bytes received)} of the whole run, also when it is over."""
    done = subprocess.run([os.path.join(build, "fabric", "fabricctl"), "--dir",
                           os.path.join(folder, "fabric"), "counters"], check=False, timeout=20,
                          capture_output=True, text=True)
    found = {}
    for line in done.stdout.splitlines()[1:]:
        host, rail, sent, received = (int(word) for word in line.split()[:4])
        found[host, rail] = (sent, received)
    return found


def fault(build, folder, *rules):
    """Installs fault rules in a run that may be under way."""
    subprocess.run([os.path.join(build, "fabric", "fabricctl"), "--dir",
                    os.path.join(folder, "fabric"), "fault", *rules],
                   check=True, timeout=20, stdout=subprocess.DEVNULL)
