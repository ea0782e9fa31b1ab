# SPDX-License-Identifier: Apache-2.0
"""Case `gpu-direct`: the fabric's adapters reach GPU memory, so NCCL sends from and receives into it:
registration by DMA-BUF or peer memory, the flush, LL128 (which NCCL itself allows only there, see
healthy.protocols), and faults on the way."""

import os

import faults
import job
from healthy import CORE, summary, used_choices

RAILS = 4


def with_peermem(context):
    """A made-up host with a peer memory module, and adapters that have no place on PCI."""
    def prepare(folder, env):
        topo = os.path.join(folder, "host.topo")
        with open(topo, "w") as stream:
            stream.writelines(f"device fab{rail}\n" for rail in range(RAILS))
        for host in (0, 1):
            module = os.path.join(folder, "fabric", f"sys-{host:02}", "module", "nvidia_peermem")
            os.makedirs(module)
            with open(os.path.join(module, "version"), "w") as stream:
                stream.write("1\n")
        env.update({"FABRIC_TOPO": topo,
                    "LD_PRELOAD": os.path.join(context.build, "fabric", "libfabric_sysfs.so")})
    return prepare


def plan():
    lines = ["comm a", f"op a {CORE}", "op a coll=all_reduce,ring bytes=64M iters=2",
             "op a coll=all_reduce,all_gather,broadcast bytes=4M reg=1 place=in,out"]
    count = 0
    for algo in ("Ring", "Tree"):
        lines += [f"comm p algo={algo} proto=LL128",
                  "op p type=float,half,bfloat16,int64 bytes=8,65540,4M place=in,out"]
        for kind in ("cut", "port_down", "ack_loss"):
            for host in (0, 1):
                lines.append(faults.fault_line(kind, "p", "all_reduce", host, 1 + count % 3, "4M",
                                               100003, turn=count))
                count += 1
        lines.append("destroy p")
    for kind in ("cut", "port_down", "ack_loss"):
        for coll in ("all_reduce", "ring", "broadcast"):
            for host in (0, 1):
                lines.append(faults.fault_line(kind, "a", coll, host, 1 + count % 3, turn=count))
                count += 1
    return lines


def run(context):
    """adapters reach GPU memory (DMA-BUF, peer memory): the core, LL128, flushes, and faults"""
    wanted = sum(line.startswith("fault") for line in plan())
    env = {"FABRIC_GPU": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_FORCE_FLUSH": "1",
           **faults.FAULT_ENV}
    words, oks, result = [], [], {}
    for how, prepare in (("DMA-BUF", None), ("peer memory", with_peermem(context))):
        done = job.run(context, "braid", plan(), rate=faults.RATE, rails=RAILS, limit_s=120, env=env,
                       prepare=prepare)
        reached = f"GPU ({how})" in done.log and "GDRDMA" in done.log
        has_ll128 = {("ring", "ll128"), ("tree", "ll128")} <= used_choices(done.log)
        found = faults.incidents(done)
        running = sum(item["running"] for item in found)
        downs = sum(item["downs"] > 0 for item in found)
        part = summary([done], "")
        ok = part["ok"] and reached and has_ll128 and running == wanted and downs == wanted
        oks.append(ok if reached else None)
        words.append(f"{how}: " + (f"{part['wrong']} of {part['elements']} elements wrong, "
                                   f"{running} of {wanted} faults hit a running collective, {downs} "
                                   "failed over" if reached else "not offered here"))
        if reached and not ok:
            result["log"] = done.tail()
        result[how] = {"wrong": part["wrong"], "elements": part["elements"], "running": running,
                       "failed_over": downs, "reached": reached, "job": done.job}
    if not any(done is not None for done in oks):
        words.append("NCCL did not use it")
        result["log"] = done.tail() + "\n" + "\n".join(
            line for line in done.log.splitlines() if "it can reach" in line or "GPU memory" in line)
    result.update({"ok": any(oks) and not any(done is False for done in oks),
                   "summary": "; ".join(words)})
    return result
