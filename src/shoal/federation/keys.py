"""The keys of a federation: a certificate authority, the server's certificate, and a key pair per site.

    DIR/server/              stays at the server
        ca.crt  server.crt  server.key
        sites.toml           name, id and public key of each site
    DIR/sites/NAME/          goes to the site
        ca.crt  site.key  site.toml

The authority's own key is not kept: a new site gets a key pair, not a certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from shoal.core.errors import SpecError

VALID = datetime.timedelta(days=730)
SERVER, SITES, LIST = "server", "sites", "sites.toml"


class Site(NamedTuple):
    """An institution that takes part; its id is its client id."""

    name: str
    id: int
    public_key: str  # in the format of OpenSSH


def make_keys(folder: Path, sites: Sequence[str], hosts: Sequence[str]) -> list[Site]:
    """Write all keys of a new federation; `hosts` are the names and addresses of the server.

    If the folder holds a federation already, missing sites are added to it.
    """
    for name in sites:
        if not name or not name.replace("-", "").replace("_", "").isalnum():
            raise SpecError(f"a site's name may have letters, digits, - and _ only, got {name!r}")
    known = read_sites(folder / SERVER) if (folder / SERVER / LIST).exists() else []
    if not known:
        _make_authority(folder / SERVER, hosts)
    for name in dict.fromkeys(sites):
        if all(site.name != name for site in known):
            known.append(_make_site(folder, name, len(known)))
    table = {"site": [site._asdict() for site in known]}
    _write(folder / SERVER / LIST, tomli_w.dumps(table).encode())
    return known


def read_sites(folder: Path) -> list[Site]:
    """The sites that a server knows."""
    try:
        table = tomllib.loads((folder / LIST).read_text(encoding="utf-8"))
        return [Site(**site) for site in table["site"]]
    except FileNotFoundError:
        raise SpecError(f"{folder} has no {LIST}; make the keys with `shoal keys`") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SpecError(f"{folder / LIST} is damaged: {error}") from None


def _make_site(folder: Path, name: str, number: int) -> Site:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    place = folder / SITES / name
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(place / "site.key", secret, secret=True)
    _write(place / "ca.crt", (folder / SERVER / "ca.crt").read_bytes())
    _write(place / "site.toml", tomli_w.dumps({"name": name, "id": number}).encode())
    return Site(name, number, public.decode())


def _make_authority(folder: Path, hosts: Sequence[str]) -> None:
    """The authority's certificate, and the server's key and certificate, signed by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _certificate("Shoal federation", "Shoal federation", authority.public_key())
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = dict.fromkeys(_USAGES, False)
    root = root.add_extension(
        x509.KeyUsage(**(usage | {"key_cert_sign": True, "crl_sign": True})), critical=True
    )
    own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = root.add_extension(own, critical=False)
    leaf = _certificate("Shoal server", "Shoal federation", server.public_key())
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    names = [_general_name(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    leaf = leaf.add_extension(signer, critical=False)
    _write(folder / "ca.crt", root.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    _write(folder / "server.crt", leaf.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(folder / "server.key", key, secret=True)


def _certificate(subject: str, issuer: str, public_key: Any) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder()
    for name, place in ((subject, builder.subject_name), (issuer, None)):
        title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = place(title) if place is not None else builder.issuer_name(title)
    builder = builder.public_key(public_key).serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALID)


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write a file; a secret one is readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
