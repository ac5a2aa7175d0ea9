"""The program of the sandbox, as a text. It is only data here; the trainer's process runs none of it.

The program uses two processes. One holds the tests and the verdict, the other holds the answer. The tests query the
answer through a pair of pipes. Plain data (whole numbers, floats, texts, bytes, lists, tuples, sets, dicts, None, and
the Counter, OrderedDict, defaultdict and deque of `collections`) is sent as JSON. Any other object stays in the
answer's process, and the test has a `Remote` for it.
"""

CHILD = r"""
import builtins, collections, json, os, sys

seconds, memory, free = float(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3].split(","))
refused = bytes.fromhex(sys.argv[4])                                    # a filter of system calls
PLAIN = (type(None), bool, int, float, str)
MADE = {kind.__name__: kind for kind in (list, tuple, set, frozenset, dict, bytes, bytearray, collections.Counter,
                                         collections.OrderedDict, collections.deque)}
sys.set_int_max_str_digits(0)

def pack(value, number):
    kind = type(value)
    if kind in PLAIN:
        return value
    kind = dict if kind is collections.defaultdict else kind
    if kind in MADE.values():
        return [kind.__name__, [pack(part, number) for part in (value.items() if issubclass(kind, dict) else value)]]
    return ["object", number(value)]

def unpack(value, find):
    if type(value) is not list:
        return value
    kind, parts = value
    if kind == "object":
        return find(parts)
    made = [unpack(part, find) for part in parts]
    return MADE[kind](dict(made) if kind == "Counter" else made)        # a Counter counts the parts of a list

def limit_resources():
    for name, most, what in (("AS", memory, "memory"), ("FSIZE", 1 << 20, "the size of files"), ("NOFILE", 32, ""),
                             ("CPU", int(seconds) + 2, ""), ("CORE", 0, "")):
        try:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
        except (OSError, ValueError):
            continue
        if not (name == "AS" and sys.platform == "darwin"):             # macOS accepts this limit and ignores it
            free.discard(what)

def enter_namespaces(libc):
    user, group, folder = os.getuid(), os.getgid(), os.getcwd()
    if libc.unshare(0x10000000 | 0x40000000 | 0x00020000):              # NEWUSER, NEWNET, NEWNS: all or none
        return
    free.difference_update(("network", "memory and open files of other processes"))
    for name, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    if libc.syscall(442, -100, b"/", 0x8000, (ctypes.c_uint64 * 4)(1), 32) == 0:    # mount_setattr: / and all below
        free.discard("other folders")                                   # they can only be read
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 6, b"size=8m,nr_inodes=100") == 0:
            free.discard("the number of files")
            os.chdir(folder)                                            # enter the one mounted over the old one

def limit_processes():
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)               # in case the parent has died
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.getuid():                                                     # the limit does not apply to root
        free.discard("processes")

def drop_capabilities(libc):
    if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0 and os.getuid() == 0:
        free.discard("memory and open files of other processes")        # other processes of root have more capabilities

def refuse_calls(libc):
    code = ctypes.create_string_buffer(refused)
    program = struct.pack("HP", len(refused) // 8, ctypes.addressof(code))
    if refused and libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0:
        free.difference_update(("processes", "signals", "network"))

def attempt(limit):
    try:
        limit(ctypes.CDLL(None))
    except (AttributeError, OSError):
        pass                                                            # the kind stays in `free`: not limited

# The answer's process. It carries out the requests of the tests on its objects; a request is one line of JSON.
def serve(requests, replies):
    objects = []
    answer = sys.modules["answer"] = type(sys)("answer")                # dataclasses look up their module here

    def number(value):
        objects.append(value)
        return len(objects) - 1

    def do(what, target, *given):
        if what == "run":
            exec(target, vars(answer))
            return {name: value for name, value in vars(answer).items() if not name.startswith("__")}
        if what == "true":
            return bool(target)
        return getattr(target, *given) if what == "get" else target(*given[0], **given[1])

    replies.write(json.dumps(sorted(free)).encode() + b"\n")
    replies.flush()
    for line in requests:
        try:
            what, *parts = unpack(json.loads(line), objects.__getitem__)
            value = pack(do(what, *parts), number)
            text = json.dumps({"value": value, "given": pack(parts[1:], number)})   # lists may have changed in place
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            text = json.dumps({"error": kinds, "text": f"{kinds[0]}: {error}"})
        replies.write(text.encode() + b"\n")
        replies.flush()

class Remote:
    def __init__(self, number):
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_told", False)                        # whether it may hold data of the test
        object.__setattr__(self, "_apart", False)                       # and be a distance from that data
    def __getattr__(self, name):
        return ask("get", self, name)
    def __call__(self, *args, **kwargs):
        return ask("call", self, args, kwargs)
    def __bool__(self):
        judged(self)
        return ask("true", self) is True
    def __repr__(self):
        return "an object of the answer"

def judged(difference):
    if difference._apart:
        raise TypeError("an object of the answer must not turn data of a test into plain data")

def forward(name, self, *args):
    if name in NUMBERS:
        judged(self)
    try:
        method = ask("get", self, name)
    except AttributeError:
        raise TypeError(f"an object of the answer has no {name}") from None
    return method(*args)

NUMBERS = {"__float__", "__int__", "__index__", "__len__", "__str__"}
APART = {f"__{kind}{name}__" for kind in ("", "r") for name in ("sub", "mod", "truediv", "floordiv")} | {"__xor__"}
# Only these operations ask the answer. It cannot influence others, such as a comparison with plain data.
for name in "setattr getitem setitem delitem len iter next enter exit str int float index".split():
    name = f"__{name}__"
    setattr(Remote, name, lambda self, *args, name=name: forward(name, self, *args))
# The difference or ratio of the answer's object and an expected value must not become a number that the answer chooses.
def calculate(name, self, *args):
    result = forward(name, self, *args)
    if self._told or any(type(x) is not Remote or x._told for x in args):
        if type(result) is not Remote:
            raise TypeError("an object of the answer must not turn data of a test into plain data")
        object.__setattr__(result, "_told", True)
        apart = name in APART or any(type(x) is Remote and x._apart for x in (self, *args))
        object.__setattr__(result, "_apart", apart)
    return result
for name in ("abs neg add sub mul truediv floordiv mod pow radd rsub rmul rtruediv rfloordiv rmod rpow matmul or and "
             "xor").split():
    name = f"__{name}__"
    setattr(Remote, name, lambda self, *args, name=name: calculate(name, self, *args))
for name in "eq ne lt le gt ge".split():
    name = f"__{name}__"
    setattr(Remote, name, lambda self, other, name=name: forward(name, self, other) if type(other) is Remote
            else NotImplemented)

def number_of(value):
    if type(value) is not Remote:
        raise TypeError(f"a test can give the answer only plain data or the answer's own objects, not {value!r}")
    return value._number

def ask(*parts):
    requests.write(json.dumps(pack(list(parts), number_of)).encode() + b"\n")
    requests.flush()
    reply = replies.readline()
    if not reply:
        tell("left", str(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])))
        leave(0)
    reply = json.loads(reply)
    if "error" in reply:
        kinds = [getattr(builtins, str(kind), None) for kind in reply["error"]]
        kind = next((k for k in kinds if isinstance(k, type) and issubclass(k, Exception)), RuntimeError)
        try:
            error = kind(reply["text"].removeprefix(kind.__name__ + ": "))
        except TypeError:                                               # UnicodeDecodeError needs more arguments
            error = RuntimeError(reply["text"])
        error.told = str(reply["text"])
        raise error
    for old, new in zip(every(parts[2:]), every(unpack(reply["given"], Remote))):
        if type(old) is type(new) in (list, bytearray):
            old[:] = new
        elif type(old) is type(new) in (dict, set):
            old.clear()
            old.update(new)
    return unpack(reply["value"], Remote)

def every(given):
    return [*given[0], *given[1].values()] if len(given) == 2 else []

def said(error):                                                        # never empty, which means "passed"
    return getattr(error, "told", f"{type(error).__name__}: {error}").strip() or type(error).__name__

def tell(what, text):
    os.write(verdict, f"\n{token} {what} {' '.join(text.split())[:200]}\n".encode("utf-8", "replace"))

leave = os._exit
import resource, signal
limit_resources()
if sys.platform == "linux":
    import ctypes, struct
    attempt(enter_namespaces)
(get, asked), (answered, put) = os.pipe(), os.pipe()
other = os.fork()
limit_processes()
if other == 0:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)                                                       # output; only its size is used
    os.dup2(get, 3)
    os.dup2(put, 4)
    os.closerange(5, 32)
    if sys.platform == "linux":
        attempt(lambda libc: libc.prctl(1, 9))                          # end when the other process ends
        attempt(drop_capabilities)
        attempt(refuse_calls)
    serve(os.fdopen(3, "rb"), os.fdopen(4, "wb"))
    leave(0)
os.close(get)
os.close(put)
requests, replies, verdict = os.fdopen(asked, "wb"), os.fdopen(answered, "rb"), os.dup(1)
os.dup2(2, 1)
if sys.platform == "linux":
    attempt(lambda libc: libc.prctl(4, 0, 0, 0, 0))                     # nobody may open its memory and descriptors
    attempt(refuse_calls)
token, source, *tests = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").split("\0")
tell("free", ",".join(json.loads(replies.readline() or "[]")))
try:
    names = {name: value for name, value in ask("run", source).items()  # a test uses Python's own `abs` and `all`
             if not name.startswith("__") and name not in vars(builtins)}
    names["__name__"] = "answer"
    tell(0, "")
except Exception as error:
    tell(0, said(error))
    tests = []                                                          # without an answer there is nothing to test
for number, test in enumerate(tests, 1):
    try:
        exec(test, names)
        tell(number, "")
    except BaseException as error:
        tell(number, said(error))
leave(0)
"""
