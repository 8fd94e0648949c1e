import base64
import hashlib
import hmac
import json
import socket
import threading

FORGET = 600  # seconds after which a member that no longer announces itself has left
MEMBER = os.environ.get("CROFT_MEMBER", "/etc/croft/member")


def member():
    """Returns what the site has told this member: secret, name, role, and on slaves the address of the master."""
    with open(MEMBER) as f:
        return dict(line.split(None, 1) for line in f.read().splitlines() if len(line.split(None, 1)) == 2)


def mac(me, *parts):
    return hmac.new(me["secret"].encode(), b"\0".join(p.encode() for p in parts), "sha256").hexdigest()


def host_key(me):
    try:
        with open(me.get("host_key", "/etc/ssh/ssh_host_ed25519_key.pub")) as f:
            return " ".join(f.read().split()[:2])
    except OSError:
        return ""


class Register:
    """The master's list of members. It is kept over restarts, so that no slave seems to leave when the master boots."""

    def __init__(self, me):
        self.me, self.lock, self.slaves = me, threading.Lock(), {}
        self.path = me.get("register", "/etc/croft/members.json")
        try:
            with open(self.path) as f:
                self.slaves = {name: (line, time.monotonic()) for name, line in json.load(f).items()}
        except (OSError, ValueError):
            pass
        port = int(me.get("port", 4179))
        if socket.has_dualstack_ipv6():
            self.server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            self.server = socket.create_server(("", port))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        few = threading.BoundedSemaphore(64)
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                time.sleep(1)
                continue
            few.acquire()
            threading.Thread(target=self.answer, args=(connection, few), daemon=True).start()

    def answer(self, connection, few):
        try:
            with connection:
                connection.settimeout(5)
                nonce = os.urandom(16).hex()
                connection.sendall((nonce + "\n").encode())
                theirs, name, key, proof = json.loads(connection.makefile("r").readline(4096))
                if not hmac.compare_digest(proof, mac(self.me, "announce", nonce, theirs, name, key)):
                    return
                if name == self.me["name"] or len((name + key).split()) > 2:
                    return
                address = connection.getpeername()[0].replace("::ffff:", "")
                self.note(name, " ".join([address, name, "slave", key]).strip())
                told = self.text()
                connection.sendall((json.dumps([told, mac(self.me, "list", theirs, told)]) + "\n").encode())
        except (OSError, ValueError, TypeError):
            pass
        finally:
            few.release()

    def note(self, name, line):
        with self.lock:
            before = self.slaves.get(name, ("", 0))[0]
            self.slaves[name] = (line, time.monotonic())
            if line != before:
                self.keep()

    def keep(self):
        with open(self.path + ".croft", "w") as f:
            json.dump({name: line for name, (line, _) in self.slaves.items()}, f)
        os.replace(self.path + ".croft", self.path)

    def text(self):
        with self.lock:
            gone = [n for n, (_, seen) in self.slaves.items() if time.monotonic() - seen > FORGET]
            for name in gone:
                del self.slaves[name]
            if gone:
                self.keep()
            own = " ".join([own_address(), self.me["name"], "master", host_key(self.me)]).strip()
            slaves = [self.slaves[n][0] for n in sorted(self.slaves, key=lambda n: (len(n), n))]
        return "".join(line + "\n" for line in [own] + slaves)


def own_address():
    """Returns the address by which this machine reaches others. Nothing is sent."""
    for family, other in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.connect((other, 9))
                return s.getsockname()[0]
        except OSError:
            pass
    raise OSError("no address yet")


def announce(me):
    """Announces this slave to the master, and returns the master's list; None: it does not answer."""
    ours, key = os.urandom(16).hex(), host_key(me)
    try:
        with socket.create_connection((me["master"], int(me.get("port", 4179))), timeout=10) as s:
            lines = s.makefile("r")
            nonce = lines.readline(100).strip()
            proof = mac(me, "announce", nonce, ours, me["name"], key)
            s.sendall((json.dumps([ours, me["name"], key, proof]) + "\n").encode())
            told, proof = json.loads(lines.readline(16 << 20))
    except (OSError, ValueError, TypeError):
        return None
    return told if hmac.compare_digest(proof, mac(me, "list", ours, told)) else None


P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P
BASE = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, P - 2, P) % P)


def add(p, q):
    """Adds two points of edwards25519 in extended coordinates."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0])
    c, d = 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def public_of(seed):
    """Returns the public key of Ed25519 to a private one (RFC 8032): the guest may have no library for it."""
    h = bytearray(hashlib.sha512(seed).digest()[:32])
    h[0] &= 248
    h[31] = h[31] & 127 | 64
    n, at, power = int.from_bytes(h, "little"), (0, 1, 1, 0), BASE + (1, BASE[0] * BASE[1] % P)
    while n:
        if n & 1:
            at = add(at, power)
        power, n = add(power, power), n >> 1
    z = pow(at[2], P - 2, P)
    return (at[1] * z % P | (at[0] * z % P & 1) << 255).to_bytes(32, "little")


def field(*parts):
    return b"".join(len(p).to_bytes(4, "big") + p for p in parts)


def cluster_key(me):
    """Returns the key that all members share, which follows from their secret, as OpenSSH writes private and public
    keys."""
    seed = hashlib.sha256(b"cluster key\0" + me["secret"].encode()).digest()
    pub = public_of(seed)
    public = field(b"ssh-ed25519", pub)
    inner = seed[:4] * 2 + field(b"ssh-ed25519", pub, seed + pub, b"croft-cluster")
    inner += bytes(range(1, 1 + -len(inner) % 8))
    body = b"openssh-key-v1\0" + field(b"none", b"none", b"") + (1).to_bytes(4, "big") + field(public, inner)
    text = base64.b64encode(body).decode()
    lines = [text[i:i + 70] for i in range(0, len(text), 70)]
    private = "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----"] + lines + ["-----END OPENSSH PRIVATE KEY-----", ""])
    return private, "ssh-ed25519 " + base64.b64encode(public).decode() + "\n"


register = None


def ask(name):
    """Returns the list of members, or a half of the key that they share; None: it is not known now."""
    global register
    try:
        me = member()
    except OSError:
        return None
    if name != "peers":
        private, public = cluster_key(me)
        return private if name == "cluster-key" else public
    if me["role"] != "master":
        return announce(me)
    if register is None:
        register = Register(me)
    return register.text()
