"""Which certificates are made, and when they are renewed."""

from __future__ import annotations

import contextlib
import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from koord_scheduler.webhook.certificates import Bundle, expires, renewed
from koord_scheduler.webhook.registration import Place
from koord_scheduler.webhook.server import load_pair, tls_context

NOW = datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = Place().names


def made() -> Bundle:
    found = renewed(None, NAMES, NOW, trusted=False)
    assert found is not None
    return found


def test_what_is_made_first() -> None:
    bundle = made()
    leaf = x509.load_pem_x509_certificate(bundle.certificate)
    (authority,) = x509.load_pem_x509_certificates(bundle.authorities)
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    assert NAMES[0] == "koordinator-webhook-service.koordinator-system.svc"
    assert expires(bundle.certificate) == NOW + 90 * DAY
    assert expires(bundle.authorities) == NOW + 3650 * DAY
    load_pair(tls_context(), bundle.certificate, bundle.key)
    for each in (bundle.key, bundle.authority_key):
        assert b"PRIVATE KEY" in each and b"BEGIN CERTIFICATE" not in each


def _handshake(server: ssl.SSLContext, authorities: bytes) -> str | None:
    """Version of TLS that both sides agree on. Raises ssl.SSLError."""
    client = ssl.create_default_context(cadata=authorities.decode())
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname=NAMES[0]),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].version()


def test_a_pair_that_does_not_fit_leaves_the_one_in_use() -> None:
    """Files that somebody else renews are read one after the other."""
    now = datetime.datetime.now(datetime.UTC)
    good, other = (renewed(None, NAMES, now, trusted=False) for _ in range(2))
    assert good is not None and other is not None
    context = tls_context()
    load_pair(context, good.certificate, good.key)
    with pytest.raises(ssl.SSLError):
        load_pair(context, other.certificate, good.key)
    assert _handshake(context, good.authorities) == "TLSv1.3"


@pytest.mark.parametrize(("days", "leaf"), [(0, False), (59, False), (61, True), (91, True)])
def test_the_certificate_is_renewed_in_time(days: int, leaf: bool) -> None:
    bundle = made()
    found = renewed(bundle, NAMES, NOW + days * DAY, trusted=True)
    assert (found is not None) is leaf
    if found is not None:
        assert found.authorities == bundle.authorities
        assert expires(found.certificate) == NOW + (days + 90) * DAY


def test_an_authority_of_koordinator_goes_on_to_sign() -> None:
    """Its keys are RSA, its certificate names the Service alone: nobody needs to trust anew."""

    def signed(name: str, key: rsa.RSAPrivateKey, by: rsa.RSAPrivateKey) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "theirs")])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + 3650 * DAY)
            .add_extension(x509.BasicConstraints(ca=key is by, path_length=None), critical=True)
        )
        if key is not by:
            names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName(name)])
            made = made.add_extension(names, critical=False)
        return made.sign(by, hashes.SHA256())

    def pem(key: rsa.RSAPrivateKey) -> bytes:
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )

    root, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    authority, leaf = signed("theirs", root, root), signed(NAMES[0], key, root)
    certificates = [e.public_bytes(serialization.Encoding.PEM) for e in (authority, leaf)]
    theirs = Bundle(certificates[0], pem(root), certificates[1], pem(key))
    new = renewed(theirs, NAMES, NOW, trusted=False)
    assert new is not None
    assert new.authorities == theirs.authorities
    x509.load_pem_x509_certificate(new.certificate).verify_directly_issued_by(authority)
    load_pair(tls_context(), new.certificate, new.key)
    assert renewed(new, NAMES, NOW, trusted=True) is None


def test_other_names_need_another_certificate() -> None:
    bundle = made()
    found = renewed(bundle, ("127.0.0.1",), NOW, trusted=True)
    assert found is not None and found.certificate != bundle.certificate
    assert renewed(found, ("127.0.0.1",), NOW, trusted=True) is None


def test_a_new_authority_is_told_before_it_signs() -> None:
    old = made()
    later = NOW + 3300 * DAY
    fresh = renewed(old, NAMES, later, trusted=True)  # the certificate had run out long before
    first = renewed(old._replace(), NAMES, later, trusted=False)
    assert first is not None and fresh is not None
    assert first.authorities.count(b"BEGIN") == 2
    assert first.authorities.endswith(old.authorities)
    assert first.certificate == old.certificate, "nobody is shown what callers do not know yet"
    # A leaf that is good still stays until callers know the new authority.
    good = renewed(old, NAMES, NOW + 3250 * DAY, trusted=True)
    assert good is not None
    told = renewed(good, NAMES, NOW + 3300 * DAY, trusted=False)
    assert told is not None and told.certificate == good.certificate
    assert renewed(told, NAMES, NOW + 3300 * DAY, trusted=False) is None
    signed = renewed(told, NAMES, NOW + 3300 * DAY, trusted=True)
    assert signed is not None and signed.certificate != good.certificate
    newest, _ = x509.load_pem_x509_certificates(signed.authorities)
    x509.load_pem_x509_certificate(signed.certificate).verify_directly_issued_by(newest)
    # Ten years on nobody needs the old one.
    gone = renewed(signed, NAMES, NOW + 6600 * DAY, trusted=True)
    assert gone is not None and gone.authorities.count(b"BEGIN") == 2
    assert old.authorities not in gone.authorities


@pytest.mark.parametrize("field", Bundle._fields)
@pytest.mark.parametrize("text", [b"", b"rubbish"])
def test_what_cannot_be_read_is_made_anew(field: str, text: bytes) -> None:
    found = renewed(made()._replace(**{field: text}), NAMES, NOW, trusted=True)
    assert found is not None
    load_pair(tls_context(), found.certificate, found.key)
    assert renewed(found, NAMES, NOW, trusted=True) is None


def test_keys_that_do_not_belong_together_are_made_anew() -> None:
    one, two = made(), made()
    for mixed in (one._replace(key=two.key), one._replace(authority_key=two.authority_key)):
        found = renewed(mixed, NAMES, NOW, trusted=True)
        assert found is not None and found.authorities not in (one.authorities, two.authorities)
    # Of another authority: signed anew by the one that callers know.
    foreign = one._replace(certificate=two.certificate, key=two.key)
    found = renewed(foreign, NAMES, NOW, trusted=True)
    assert found is not None and found.authorities == one.authorities


PLACES = [
    (Place(url="https://127.0.0.1:9876"), ("127.0.0.1",)),
    (Place(url="https://[::1]:9876/base"), ("::1",)),
    (Place(url="https://host.example"), ("host.example",)),
    (
        Place(namespace="n", service="s"),
        ("s.n.svc", "s.n.svc.cluster.local", "s.n"),
    ),
]


@pytest.mark.parametrize(("place", "names"), PLACES)
def test_the_names_of_the_server(place: Place, names: tuple[str, ...]) -> None:
    assert place.names == names
