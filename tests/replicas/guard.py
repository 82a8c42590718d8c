"""Starts a command, and ends it when whoever asked for it is gone, or when its time is over.

Run as a script, `guard.py SECONDS COMMAND...`: says the command's process id on standard output, and leaves as the
command did. Standard input is the leash: at its end the command is killed. A thread that starts a process may end
before it, so that the kernel's own signal at a parent's death serves only here, where there is one thread.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def main() -> int:
    ends, command = time.monotonic() + float(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    pid = os.fork()
    if not pid:
        become(command, libc)
    os.write(1, b"%d\n" % pid)
    os.close(1)
    while True:
        ready, _, _ = select.select([0, woken], [], [], max(0.0, ends - time.monotonic()))
        if woken in ready:
            os.read(woken, 1000)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        if 0 in ready or not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 128 + signal.SIGKILL


def become(command: list[str], libc: ctypes.CDLL | None) -> None:
    """In the child: the command, which writes all it says where the guard's errors go."""
    try:
        if libc is not None:
            libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.execvp(command[0], command)
    except BaseException as error:  # noqa: BLE001  # whatever it was, two processes must not go on from here
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    sys.exit(main())
