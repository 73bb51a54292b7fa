"""The program that a node finds as `flwr-clientapp`: asks the site's warm process to fork, see `warm_app.py`.

python -IS ask_warm_app.py SOCKET FLWR_CLIENTAPP ARGUMENTS...

If the warm process does not answer, it runs Flower's own program.
"""

import json
import os
import socket
import sys


def main(path: str, program: str, *arguments: str) -> None:
    """Run `flwr-clientapp` with these arguments."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(json.dumps(arguments).encode() + b"\n")
            if connection.recv(1):
                return
    except OSError:
        pass
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
