"""Filter of system calls for a process that runs untrusted code: Linux on x86_64 and aarch64.

The kernel keeps the filter until the process ends, even for root. A refused call fails with EPERM. A call newer than
Linux 5.0 fails with ENOSYS, as on an old kernel, so libraries use the older call.
"""
import os
import struct
import sys

# Names for the reader, and numbers on x86_64 and aarch64; None if the architecture has no such call.
ALWAYS = {
    # signals to other processes
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    # new processes, and leaving the process group that is killed at the end
    "fork": (57, None), "vfork": (58, None), "setsid": (112, 157), "setpgid": (109, 154),
    # memory, file descriptors, priorities and processors of other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # the kernel itself and its keys
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
    # memory and queues shared between processes of one user
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181)}
SOCKET, CLONE, FCNTL, PRLIMIT = (41, 198), (56, 220), (72, 25), (302, 261)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}        # column of the numbers; kernel's name
NEWEST = 424                # from here: pidfd_*, io_uring_*, open_tree, move_mount, fs*, clone3, and the x32 numbers
THREAD = 0x10000            # flag of clone
OWNERS = (8, 10, 15)        # commands of fcntl that can make the kernel send a signal: F_SETOWN, F_SETSIG, F_SETOWN_EX
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, UNKNOWN = 0x7fff0000, 0x00050001, 0x00050026               # the last two: EPERM, ENOSYS


def seccomp_filter(*, threads: bool, sockets: bool) -> bytes:
    """Return the filter as classic BPF instructions for `prctl(PR_SET_SECCOMP)`; b"" on unknown processors.

    Args:
        threads: whether new threads are allowed; new processes are always refused.
        sockets: whether new sockets are allowed.
    """
    if sys.platform != "linux" or os.uname().machine not in MACHINES or sys.maxsize < 2**32:
        return b""
    column, machine = MACHINES[os.uname().machine]
    refused = [numbers[column] for numbers in ALWAYS.values()]
    refused += [numbers[column] for numbers, allowed in ((SOCKET, sockets), (CLONE, threads)) if not allowed]
    rules = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, machine), (RETURN, 0, 0, REFUSE),       # 32-bit calls have other numbers
             (LOAD, 0, 0, 0), (AT_LEAST, 0, 1, NEWEST), (RETURN, 0, 0, UNKNOWN)]
    for number in refused:
        if number is not None:
            rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    rules += [(EQUAL, 0, 4, CLONE[column]), (LOAD, 0, 0, 16), (ANY_BIT, 1, 0, THREAD), (RETURN, 0, 0, REFUSE),
              (RETURN, 0, 0, ALLOW)]
    rules += [(EQUAL, 0, 4, PRLIMIT[column]), (LOAD, 0, 0, 16), (EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE),
              (RETURN, 0, 0, ALLOW)]                                                # the process's own limits
    rules += [(EQUAL, 0, 3 + len(OWNERS), FCNTL[column]), (LOAD, 0, 0, 24),
              *((EQUAL, len(OWNERS) - i, 0, command) for i, command in enumerate(OWNERS)),
              (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    rules += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)
