import socket

SERVER = "169.254.169.254"


def ask(name):
    """Returns a file of the metadata server; None: it does not tell now."""
    request = "GET /croft/v1/" + name + " HTTP/1.0\r\nHost: " + SERVER + "\r\n\r\n"
    try:
        with socket.create_connection((SERVER, 80), timeout=10) as s:
            s.sendall(request.encode())
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    except (OSError, UnicodeDecodeError):
        return None
    head, whole, body = answer.partition("\r\n\r\n")
    lines = head.split("\r\n")
    if not whole or lines[0].split()[1:2] != ["200"]:
        return None
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key.lower() == "content-length" and int(value) != len(body.encode()):
            return None  # cut off
    return body
