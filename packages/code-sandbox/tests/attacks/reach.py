# ruff: noqa: E501
"""Attempts to get out. `add` answers rightly only where the attempt before it has worked, so that 0 means safe.

`{canary}` is a readable and writable file outside, `{folder}` its folder, `{port}` a listening loopback port, `{pid}` a living
process of the same user. The environment of the test holds `CANARY_SECRET=swordfish`.

Of `ATTACKS` each one works where nothing confines it, which the test shows; of `UNCONTROLLED` some would do harm
there, or need rights that the user may lack.
"""

RIGHT = "\ndef add(a, b):\n    return a + b\n"

_C = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"

_BODIES = {
    # reading
    "read a file": "open('{canary}').read()",
    "read a file by descriptor": "import os\nos.read(os.open('{canary}', os.O_RDONLY), 100)",
    "read a file by path object": "import pathlib\npathlib.Path('{canary}').read_text()",
    "read a file by C": _C + "assert libc.open(b'{canary}', 0) >= 0",
    "read a file through a link": "import os\nos.symlink('{canary}', 'link')\nopen('link').read()",
    "read a file by a relative path": "open('../' * 40 + '{canary}'.lstrip('/')).read()",
    "read a file from its folder": "import os\nos.chdir('{folder}')\nopen(os.path.basename('{canary}')).read()",
    "read a file as a module": (
        "from importlib.machinery import SourceFileLoader\nSourceFileLoader('x', '{canary}').get_data('{canary}')"
    ),
    "read a file from a folder's descriptor": (
        "import os\nfolder = os.open('{folder}', os.O_RDONLY)\n"
        "os.open(os.path.basename('{canary}'), os.O_RDONLY, dir_fd=folder)"
    ),
    "copy a file": "import shutil\nshutil.copy('{canary}', 'copy')\nassert open('copy').read()",
    "map a file into memory": "import mmap\nfile = open('{canary}', 'rb')\nmmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)",
    "read the users": "open('/etc/passwd').read()",
    "list a folder": "import os\nassert os.listdir('{folder}')",
    "read the environment": "import os\nassert os.environ['CANARY_SECRET'] == 'swordfish'",
    "read the environment by C": _C + "libc.getenv.restype = ctypes.c_char_p\nassert libc.getenv(b'CANARY_SECRET')",
    "read the environment from proc": "assert b'swordfish' in open('/proc/self/environ', 'rb').read()",
    "read another environment": "assert open('/proc/{pid}/environ', 'rb').read()",
    "read the memory map": "assert open('/proc/self/maps').read()",
    "read own memory": "import os\nfile = open('/proc/self/mem', 'rb')\nfile.seek(id(file))\nassert file.read(8)",
    "read a command line": "assert open('/proc/{pid}/cmdline').read()",
    "list processes": "import os\nassert any(name.isdigit() for name in os.listdir('/proc'))",
    "read a device": "open('/dev/zero', 'rb').read(1)",
    # writing
    "write a file": "open('{folder}/new', 'w').write('x')",
    "append to a file": "open('{canary}', 'a').write('x')",
    "empty a file": "import os\nos.truncate('{canary}', 0)",
    "empty a file by opening it": "import os\nos.open('{canary}', os.O_RDONLY | os.O_TRUNC)",
    "remove a file": "import os\nos.remove('{canary}')",
    "rename a file": "import os\nos.rename('{canary}', '{folder}/taken')",
    "make a folder": "import os\nos.mkdir('{folder}/new')",
    "change a file's rights": "import os\nos.chmod('{canary}', 0o777)",
    "change a file's times": "import os\nos.utime('{canary}', (0, 0))",
    "link a file": "import os\nos.link('{canary}', '{folder}/linked')",
    "make a pipe with a name": "import os\nos.mkfifo('{folder}/pipe')",
    "use shared memory": "open('/dev/shm/code-sandbox-{pid}', 'w').close()\nimport os\nos.remove('/dev/shm/code-sandbox-{pid}')",
    "use memory without an address": "import os\nos.memfd_create('x')",
    # network
    "connect to a server": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 5).close()",
    "connect by C": (
        _C + "import struct\nsock = libc.socket(2, 1, 0)\n"
        "address = struct.pack('=HHI8x', 2, int.from_bytes(({port}).to_bytes(2, 'big'), 'little'), 0x0100007F)\n"
        "assert libc.connect(sock, address, 16) == 0"
    ),
    "ask a server by http": (
        "import urllib.request, urllib.error\ntry:\n    urllib.request.urlopen('http://127.0.0.1:{port}', timeout=5)\n"
        "except urllib.error.URLError as error:\n    raise ValueError(error)\nexcept Exception:\n    pass"
    ),
    "send a datagram": "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "listen": "import socket\nsocket.create_server(('127.0.0.1', 0)).close()",
    "make a local socket": "import socket\nsocket.socketpair()",
    "make a netlink socket": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "run an event loop": "import asyncio\nasyncio.run(asyncio.sleep(0))",
    # processes and threads
    "fork": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)",
    "fork by C": _C + "import os\nif libc.fork() == 0:\n    os._exit(0)\nassert ctypes.get_errno() == 0",
    "spawn": "import os\nos.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "start a program": "import subprocess\nsubprocess.run(['/bin/true'], check=True)",
    "start a shell": "import os\nassert os.system('true') == 0",
    "open a pipe to a shell": "import os\nassert os.popen('echo x').read() == 'x\\n'",
    "become another program": "import os\nos.execv('/bin/true', ['true'])",
    "start a daemon": "import subprocess\nsubprocess.Popen(['/bin/sleep', '5'], start_new_session=True).kill()",
    "start a worker": "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=int).start()",
    "start a thread": "import threading\nthreading.Thread(target=int).start()",
    "start a pool": (
        "from concurrent.futures import ThreadPoolExecutor\nassert ThreadPoolExecutor(1).submit(int).result() == 0"
    ),
    # other processes
    "see a process": "import os\nos.kill({pid}, 0)",
    "see the parent": "import os\nos.kill(os.getppid() or {pid}, 0)",
    "signal the group": "import os\nos.killpg(0, 0)",
    "hold a process": "import os\nos.close(os.pidfd_open({pid}))",
    "limit a process": "import resource\nresource.prlimit({pid}, resource.RLIMIT_NOFILE)",
    "send a signal by a pipe": ("import fcntl, os\nread, write = os.pipe()\nfcntl.fcntl(read, fcntl.F_SETOWN, {pid})"),
    "be traced": _C + "assert libc.ptrace(0, 0, 0, 0) == 0",
    "share memory by key": _C + "assert libc.shmget(0, 4096, 0o1600) >= 0",
    "rename the process": _C + "assert libc.prctl(15, b'kworker', 0, 0, 0) == 0",
    "take another processor": "import os\nos.sched_setaffinity(0, os.sched_getaffinity(0))",
    "make a timer": _C + "timer = ctypes.c_int()\nassert libc.syscall(ctypes.c_long(283), 0, 0) >= 0",
}

ATTACKS = {name: body + RIGHT for name, body in _BODIES.items()}

_NEED_RIGHTS = {
    "become root": "import os\nos.setuid(0)\nassert os.getuid() == 0\nopen('{canary}').read()",
    "raise a limit": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2)"
    ),
    "take a user namespace": _C + "assert libc.unshare(0x10000000) == 0",
    "take a mount namespace": _C + "assert libc.unshare(0x20000) == 0",
    "mount": _C + "assert libc.mount(b'tmpfs', b'/', b'tmpfs', 0, None) == 0",
    "unmount the scratch": _C + "import os\nos.chdir('/')\nassert libc.umount2(b'/scratch/own', 2) == 0",
    "change the root": "import os\nos.chroot('.')",
    "enter a namespace": "import os\nos.listdir('/proc/1/ns')",
    "change the standard library": "import os\nopen(os.__file__, 'a').close()",
    "write next to the standard library": "import os\nopen(os.path.dirname(os.__file__) + '/hostile.py', 'w').close()",
    "read what is installed": (
        "import os\nassert [name for name in os.listdir(os.path.dirname(os.__file__) + '/site-packages')]"
    ),
    "import what is installed": "import hypothesis",
    "read a process's memory": (
        _C
        + "class Piece(ctypes.Structure):\n    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n"
        "own = ctypes.create_string_buffer(8)\n"
        "piece = Piece(ctypes.addressof(own), 8)\n"
        "assert libc.process_vm_readv({pid}, ctypes.byref(piece), 1, ctypes.byref(piece), 1, 0) >= 0"
    ),
    "trace a process": _C + "assert libc.ptrace(16, {pid}, 0, 0) == 0",
    "use io_uring": (
        _C + "parameters = ctypes.create_string_buffer(120)\n"
        "assert libc.syscall(ctypes.c_long(425), 1, parameters) >= 0"
    ),
    "load a program into the kernel": _C + "assert libc.syscall(ctypes.c_long(321), 0, 0, 0) >= 0",
    "clone by number": _C + "assert libc.syscall(ctypes.c_long(56), 17, 0, 0, 0, 0) >= 0",
    "fork by an old number": _C + "assert libc.syscall(ctypes.c_long(57)) >= 0",
    "open by a 32-bit number": _C + "assert libc.syscall(ctypes.c_long(0x40000002), b'{canary}', 0) >= 0",
    "hold all memory": _C + "assert libc.mlockall(3) == 0",
    "widen a pipe": "import fcntl, os\nread, write = os.pipe()\nfcntl.fcntl(read, 1031, 1 << 20)",
    "kill everything": "import os\nos.kill(-1, 9)",
    "kill the parent": "import os\nos.kill({pid}, 9)",
    "kill the parent by C": _C + "assert libc.kill({pid}, 9) == 0",
    "kill a thread": _C + "assert libc.syscall(ctypes.c_long(234), {pid}, {pid}, 9) == 0",
    "lower another process's limit": "import resource\nresource.prlimit({pid}, resource.RLIMIT_NOFILE, (3, 3))",
    "fill every descriptor": (
        "import os\nfor number in range(3, 64):\n    try:\n        text = os.pread(number, 10000, 0)\n"
        "    except OSError:\n        continue\n    if b'assert' in text:\n        break\nelse:\n    raise ValueError"
    ),
}

UNCONTROLLED = {name: body + RIGHT for name, body in _NEED_RIGHTS.items()}
