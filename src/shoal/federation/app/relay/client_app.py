"""Flower starts this for every message, so it imports little and hands the packet to `shoal client`."""

import socket
import struct

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("shoal")
def relay(message: Message, context: Context) -> Message:
    """Return the answer of the site's long-running process."""
    record = message.content["shoal"]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.node_config["socket"]))
        for part in (record["job"], record["packet"]):
            connection.sendall(struct.pack("<Q", len(part)) + part)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as file:
            job, packet = (file.read(struct.unpack("<Q", file.read(8))[0]) for _ in range(2))
    return Message(RecordDict({"shoal": ConfigRecord({"job": job, "packet": packet})}), reply_to=message)
