"""The certificate of the webhooks and the authority that signs it: made here, renewed here.

`cryptography` is imported by this module alone, which is loaded where certificates are made.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS, LEAF_DAYS = 3650, 90
CA_LEFT_DAYS, LEAF_LEFT_DAYS = 365, 30
"""Renewed when fewer are left."""
_EARLIER = datetime.timedelta(hours=1)
"""Clocks of other machines may be behind."""
_MOST_NAMES = 16
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Ours are of the first kind, those of Koordinator's manager, which we take over, of the second."""


class Bundle(NamedTuple):
    """All in PEM. ``authorities``: what callers should trust, the newest first; ``authority_key``
    belongs to that one. ``certificate`` may still be signed by an older one."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def renewed(
    bundle: Bundle | None, names: Iterable[str], now: datetime.datetime, *, trusted: bool
) -> Bundle | None:
    """What should take the place of ``bundle``; None where it is good. ``names``: DNS names and
    addresses of the server. ``trusted``: callers know every authority of ``bundle``; before, no
    certificate of a new one is shown to them.

    A bundle that cannot be read is replaced as a whole.
    """
    wanted = tuple(names)[:_MOST_NAMES]
    if bundle is None:
        return _first(wanted, now)
    try:
        authorities = x509.load_pem_x509_certificates(bundle.authorities)
        authority_key = _private(bundle.authority_key)
        leaf = x509.load_pem_x509_certificate(bundle.certificate)
        fits = _private(bundle.key).public_key() == leaf.public_key()
        fits = fits and authority_key.public_key() == authorities[0].public_key()
    except (ValueError, TypeError, IndexError):
        return _first(wanted, now)
    if not fits or _left_days(authorities[0], now) <= 0:
        return _first(wanted, now)
    if _left_days(authorities[0], now) < CA_LEFT_DAYS:
        newest, newest_key = _authority(now)
        kept = [newest, *(each for each in authorities if _left_days(each, now) > 0)]
        return bundle._replace(authorities=_pem(*kept), authority_key=_key_pem(newest_key))
    by_newest = _is_signed(leaf, authorities[0])
    if by_newest or _left_days(leaf, now) <= 0 or trusted:
        due = _left_days(leaf, now) < LEAF_LEFT_DAYS or _names_of(leaf) != set(wanted)
        if due or not by_newest:
            certificate, key = _leaf(authorities[0], authority_key, wanted, now)
            return bundle._replace(certificate=_pem(certificate), key=_key_pem(key))
    return None


def expires(certificate: bytes) -> datetime.datetime:
    """Of a certificate in PEM. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _first(names: tuple[str, ...], now: datetime.datetime) -> Bundle:
    authority, authority_key = _authority(now)
    certificate, key = _leaf(authority, authority_key, names, now)
    return Bundle(_pem(authority), _key_pem(authority_key), _pem(certificate), _key_pem(key))


def _authority(
    now: datetime.datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"koord-scheduler {now:%Y-%m-%d}")])
    made = (
        _begun(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_others=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made, key


def _leaf(
    authority: x509.Certificate,
    authority_key: PrivateKey,
    names: tuple[str, ...],
    now: datetime.datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name holds 64 characters, and nobody reads it.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "koord-scheduler webhook")])
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    made = (
        _begun(name, authority.subject, key.public_key(), now, LEAF_DAYS)
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_others=False), critical=True)
        .add_extension(server, critical=False)
        .add_extension(by, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return made, key


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _general(names: Iterable[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in names}


def _is_signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    # The signature alone does not tell: two authorities may have names alike.
    try:
        certificate.verify_directly_issued_by(by)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _left_days(certificate: x509.Certificate, now: datetime.datetime) -> float:
    return (certificate.not_valid_after_utc - now).total_seconds() / 86400


def _private(pem: bytes) -> PrivateKey:
    """Raises ValueError for another kind of key."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the key is of another kind")
    return key


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
