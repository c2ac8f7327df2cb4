"""Makes TLS connections, with certificates in several places: python_tls.py PROGRAMS.

It is run as root in an image that has no certificates of its own.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

FOLDER = Path(sys.argv[1])


def connect(name):
    """Connect to a server of `name` by the default context; returns what is verified, or why it isn't."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(FOLDER / f"{name}.pem", FOLDER / f"{name}.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        try:
            with serving.wrap_socket(connection, server_side=True) as secured:
                secured.sendall(b"hello")
        except (ssl.SSLError, OSError):
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with socket.create_connection(listener.getsockname()) as plain:
            context = ssl.create_default_context()
            with context.wrap_socket(plain, server_hostname="localhost") as secured:
                return secured.recv(5).decode()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        thread.join()
        listener.close()


def scenario(name, environment):
    argv = [sys.executable, __file__, str(FOLDER), "ask"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SSL_CERT")}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env={**clean, **environment})
    return name, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def main():
    if sys.argv[2:] == ["ask"]:
        context = ssl.create_default_context()
        answers = {name: connect(name) for name in ("trusted", "stranger")}
        paths = ssl.get_default_verify_paths()
        print(json.dumps({**answers, "known": len(context.get_ca_certs()), "file": paths.cafile}))
        return
    trusted = FOLDER / "trusted-ca.pem"
    found = [scenario("nothing", {})]
    found.append(scenario("named", {"SSL_CERT_FILE": str(trusted)}))
    found.append(scenario("missing", {"SSL_CERT_FILE": "/nowhere.pem"}))
    found.append(scenario("missing folder", {"SSL_CERT_DIR": "/nowhere"}))
    bundle = Path("/etc/pki/tls/certs/ca-bundle.crt")
    bundle.parent.mkdir(parents=True)
    bundle.write_bytes(trusted.read_bytes())
    found.append(scenario("pki", {}))
    print(json.dumps(dict(found)))


main()
