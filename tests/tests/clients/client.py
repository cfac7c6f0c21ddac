"""What Python programs do with a token. Arguments: the module, the token's label, the user's and the security officer's
PIN, and either "steps" (each once; "ok NAME" or "failed NAME: why") or a number of seconds to do the same things over
and over ("N rounds" at the end; the first failure ends it)."""

import hashlib
import hmac
import sys
import threading
import time

import pkcs11
from pkcs11 import KDF, MGF, Attribute, KeyType, Mechanism, ObjectClass
from pkcs11.util.ec import encode_named_curve_parameters

MODULE, LABEL, PIN, SO_PIN, MODE = sys.argv[1:6]
DATA = b"what is signed and sealed"
ED25519 = bytes.fromhex("06032b6570")  # 1.3.101.112
STEPS = []


def step(name):
    def add(function):
        STEPS.append((name, function))
        return function

    return add


def check(right, what):
    if not right:
        raise AssertionError(what)


def refused(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def ec(session, curve="secp256r1", **more):
    parameters = session.create_domain_parameters(
        KeyType.EC, {Attribute.EC_PARAMS: encode_named_curve_parameters(curve)}, local=True)
    return parameters.generate_keypair(**more)


@step("token and slot")
def _(token, session):
    check(token.label == LABEL, f"the label is {token.label}")
    check(token.serial, "no serial")
    check(Mechanism.AES_CBC_PAD in token.slot.get_mechanisms(), "no AES-CBC-PAD")
    info = token.slot.get_mechanism_info(Mechanism.RSA_PKCS)
    check(info.min_key_length <= 2048 <= info.max_key_length, "no RSA-2048")


@step("RSA, sign, verify, in one and in parts")
def _(token, session):
    public, private = session.generate_keypair(KeyType.RSA, 2048, label="py-rsa", store=True)
    for mechanism in (Mechanism.SHA1_RSA_PKCS, Mechanism.SHA256_RSA_PKCS, Mechanism.SHA512_RSA_PKCS):
        whole = private.sign(DATA, mechanism=mechanism)
        check(whole == private.sign((DATA[:3], DATA[3:9], DATA[9:]), mechanism=mechanism), "parts differ")
        check(public.verify(DATA, whole, mechanism=mechanism), "is not verified")
        check(public.verify((DATA[:3], DATA[3:]), whole, mechanism=mechanism), "parts are not verified")
        check(not public.verify(DATA + b"!", whole, mechanism=mechanism), "other data is verified")


@step("RSA, PSS")
def _(token, session):
    public, private = session.generate_keypair(KeyType.RSA, 2048)
    parameter = (Mechanism.SHA256, MGF.SHA256, 32)
    signature = private.sign(DATA, mechanism=Mechanism.SHA256_RSA_PKCS_PSS, mechanism_param=parameter)
    check(public.verify(DATA, signature, mechanism=Mechanism.SHA256_RSA_PKCS_PSS, mechanism_param=parameter), "not verified")
    digest = hashlib.sha256(DATA).digest()
    signature = private.sign(digest, mechanism=Mechanism.RSA_PKCS_PSS, mechanism_param=parameter)
    check(public.verify(digest, signature, mechanism=Mechanism.RSA_PKCS_PSS, mechanism_param=parameter), "not verified")


@step("RSA, encrypt and decrypt")
def _(token, session):
    public, private = session.generate_keypair(KeyType.RSA, 2048)
    for mechanism, parameter in ((Mechanism.RSA_PKCS, None), (Mechanism.RSA_PKCS_OAEP, (Mechanism.SHA_1, MGF.SHA1, None))):
        sealed = public.encrypt(DATA, mechanism=mechanism, mechanism_param=parameter)
        check(private.decrypt(sealed, mechanism=mechanism, mechanism_param=parameter) == DATA, str(mechanism))


@step("RSA, OAEP with SHA-256")
def _(token, session):
    public, private = session.generate_keypair(KeyType.RSA, 2048)
    parameter = (Mechanism.SHA256, MGF.SHA256, None)
    sealed = public.encrypt(DATA, mechanism=Mechanism.RSA_PKCS_OAEP, mechanism_param=parameter)
    check(private.decrypt(sealed, mechanism=Mechanism.RSA_PKCS_OAEP, mechanism_param=parameter) == DATA, "differs")


@step("EC, sign and verify")
def _(token, session):
    for curve in ("secp256r1", "secp384r1", "secp521r1"):
        public, private = ec(session, curve)
        digest = hashlib.sha256(DATA).digest()
        signature = private.sign(digest, mechanism=Mechanism.ECDSA)
        check(public.verify(digest, signature, mechanism=Mechanism.ECDSA), curve)


@step("EC, ECDSA with SHA-256")
def _(token, session):
    public, private = ec(session)
    signature = private.sign((DATA[:3], DATA[3:]), mechanism=Mechanism.ECDSA_SHA256)
    digest = hashlib.sha256(DATA).digest()
    check(public.verify(digest, signature, mechanism=Mechanism.ECDSA), "not verified")


@step("EC, ECDH on both sides")
def _(token, session):
    capabilities = {"capabilities": pkcs11.MechanismFlag.DERIVE}
    (one_public, one), (two_public, two) = ec(session, **capabilities), ec(session, **capabilities)
    template = {Attribute.SENSITIVE: False, Attribute.EXTRACTABLE: True}

    def derive(private, public):
        key = private.derive_key(KeyType.AES, 256, template=template,
                                 mechanism_param=(KDF.NULL, None, public[Attribute.EC_POINT]))
        return key[Attribute.VALUE]

    check(derive(one, two_public) == derive(two, one_public), "they differ")


@step("Ed25519, sign and verify")
def _(token, session):
    parameters = session.create_domain_parameters(
        KeyType.EC_EDWARDS, {Attribute.EC_PARAMS: ED25519}, local=True)
    public, private = parameters.generate_keypair(mechanism=Mechanism.EC_EDWARDS_KEY_PAIR_GEN)
    signature = private.sign(DATA, mechanism=Mechanism.EDDSA)
    check(public.verify(DATA, signature, mechanism=Mechanism.EDDSA), "not verified")


@step("AES, CBC-PAD in one and in parts")
def _(token, session):
    for bits in (128, 192, 256):
        key = session.generate_key(KeyType.AES, bits)
        iv = session.generate_random(128)
        sealed = key.encrypt(DATA, mechanism_param=iv)
        check(key.decrypt(sealed, mechanism_param=iv) == DATA, "differs")
        long = bytes(range(256)) * 400
        parts = b"".join(key.encrypt((long[:1000], long[1000:1001], long[1001:]), mechanism_param=iv))
        check(parts == key.encrypt(long, mechanism_param=iv), "parts differ")
        opened = b"".join(key.decrypt((parts[:17], parts[17:50000], parts[50000:]), mechanism_param=iv))
        check(opened == long, "parts open to something else")


@step("AES, ECB, CBC")
def _(token, session):
    key = session.generate_key(KeyType.AES, 256)
    for mechanism, parameter in ((Mechanism.AES_ECB, None), (Mechanism.AES_CBC, bytes(16))):
        sealed = key.encrypt(bytes(64), mechanism=mechanism, mechanism_param=parameter)
        check(key.decrypt(sealed, mechanism=mechanism, mechanism_param=parameter) == bytes(64), str(mechanism))


@step("AES, CTR")
def _(token, session):
    key = session.generate_key(KeyType.AES, 256)
    parameter = pkcs11.CTRParams(nonce=bytes(12))
    sealed = key.encrypt(DATA, mechanism=Mechanism.AES_CTR, mechanism_param=parameter)
    check(key.decrypt(sealed, mechanism=Mechanism.AES_CTR, mechanism_param=parameter) == DATA, "differs")


@step("AES, GCM")
def _(token, session):
    key = session.generate_key(KeyType.AES, 256)
    parameter = pkcs11.GCMParams(nonce=bytes(12), aad=b"beside", tag_bits=128)
    sealed = key.encrypt(DATA, mechanism=Mechanism.AES_GCM, mechanism_param=parameter)
    check(key.decrypt(sealed, mechanism=Mechanism.AES_GCM, mechanism_param=parameter) == DATA, "differs")
    forged = bytes([sealed[0] ^ 1]) + sealed[1:]
    refused(pkcs11.PKCS11Error, lambda: key.decrypt(forged, mechanism=Mechanism.AES_GCM, mechanism_param=parameter))


@step("HMAC of a known key, in one and in parts")
def _(token, session):
    for bits, mechanism, name in ((256, Mechanism.SHA256_HMAC, "sha256"), (512, Mechanism.SHA512_HMAC, "sha512")):
        value = bytes(range(bits // 8))
        key = session.create_object({
            Attribute.CLASS: ObjectClass.SECRET_KEY, Attribute.KEY_TYPE: KeyType.GENERIC_SECRET,
            Attribute.VALUE: value, Attribute.SIGN: True, Attribute.VERIFY: True})
        expected = hmac.new(value, DATA, name).digest()
        check(key.sign(DATA, mechanism=mechanism) == expected, f"{name} differs")
        check(key.sign((DATA[:4], DATA[4:]), mechanism=mechanism) == expected, f"{name} in parts differs")
        check(key.verify(DATA, expected, mechanism=mechanism), f"{name} is not verified")


@step("digests in one and in parts")
def _(token, session):
    for mechanism, name in ((Mechanism.SHA_1, "sha1"), (Mechanism.SHA256, "sha256"), (Mechanism.SHA512, "sha512")):
        expected = hashlib.new(name, DATA).digest()
        check(session.digest(DATA, mechanism=mechanism) == expected, name)
        check(session.digest((DATA[:4], DATA[4:]), mechanism=mechanism) == expected, f"{name} in parts")


@step("random")
def _(token, session):
    session.seed_random(b"a seed")
    check(session.generate_random(256) != session.generate_random(256), "twice the same")


@step("wrap and unwrap, AES key wrap")
def _(token, session):
    wrapping = session.generate_key(KeyType.AES, 256)
    key = session.generate_key(KeyType.AES, 128, template={Attribute.EXTRACTABLE: True})
    wrapped = wrapping.wrap_key(key, mechanism=Mechanism.AES_KEY_WRAP)
    back = wrapping.unwrap_key(ObjectClass.SECRET_KEY, KeyType.AES, wrapped, mechanism=Mechanism.AES_KEY_WRAP)
    sealed = key.encrypt(bytes(32), mechanism=Mechanism.AES_ECB)
    check(back.decrypt(sealed, mechanism=Mechanism.AES_ECB) == bytes(32), "another key came back")


@step("wrap and unwrap, RSA")
def _(token, session):
    public, private = session.generate_keypair(KeyType.RSA, 2048)
    key = session.generate_key(KeyType.AES, 128, template={Attribute.EXTRACTABLE: True})
    wrapped = public.wrap_key(key, mechanism=Mechanism.RSA_PKCS)
    back = private.unwrap_key(ObjectClass.SECRET_KEY, KeyType.AES, wrapped, mechanism=Mechanism.RSA_PKCS)
    sealed = key.encrypt(bytes(32), mechanism=Mechanism.AES_ECB)
    check(back.decrypt(sealed, mechanism=Mechanism.AES_ECB) == bytes(32), "another key came back")


@step("a key that must not leave is not wrapped")
def _(token, session):
    wrapping = session.generate_key(KeyType.AES, 256)
    key = session.generate_key(KeyType.AES, 128, template={Attribute.EXTRACTABLE: False})
    refused(pkcs11.KeyUnextractable, lambda: wrapping.wrap_key(key, mechanism=Mechanism.AES_KEY_WRAP))


@step("attributes")
def _(token, session):
    key = session.generate_key(KeyType.AES, 256, label="py-attributes", id=b"\x01\x02")
    check(key[Attribute.LABEL] == "py-attributes", "the label")
    check(key[Attribute.ID] == b"\x01\x02", "the id")
    for attribute in (Attribute.LOCAL, Attribute.SENSITIVE, Attribute.ALWAYS_SENSITIVE, Attribute.NEVER_EXTRACTABLE):
        check(key[attribute] is True, f"{attribute} is not true")
    check(key[Attribute.KEY_GEN_MECHANISM] == Mechanism.AES_KEY_GEN, "how it was made")
    check(key[Attribute.VALUE_LEN] == 32, "the length")
    refused(pkcs11.AttributeSensitive, lambda: key[Attribute.VALUE])
    key[Attribute.LABEL] = "py-renamed"
    check(key[Attribute.LABEL] == "py-renamed", "the new label")
    refused(pkcs11.PKCS11Error, lambda: key.__setitem__(Attribute.SENSITIVE, False))


@step("find by every attribute")
def _(token, session):
    for number in range(5):
        session.generate_key(KeyType.AES, 128, label=f"py-find-{number}", id=bytes([7, number]))
    found = list(session.get_objects({Attribute.LABEL: "py-find-3"}))
    check(len(found) == 1 and found[0].id == bytes([7, 3]), "by label")
    check(session.get_key(id=bytes([7, 4])).label == "py-find-4", "by id")
    keys = list(session.get_objects({Attribute.CLASS: ObjectClass.SECRET_KEY, Attribute.KEY_TYPE: KeyType.AES}))
    check(len(keys) >= 5, "by class and kind")
    check(not list(session.get_objects({Attribute.LABEL: "py-nothing"})), "what is not there")
    refused(pkcs11.NoSuchKey, lambda: session.get_key(label="py-nothing"))


@step("copy and destroy")
def _(token, session):
    key = session.generate_key(KeyType.AES, 128, label="py-copy")
    other = key.copy({Attribute.LABEL: "py-copied"})
    sealed = key.encrypt(bytes(16), mechanism=Mechanism.AES_ECB)
    check(other.decrypt(sealed, mechanism=Mechanism.AES_ECB) == bytes(16), "another key")
    other.destroy()
    refused(pkcs11.NoSuchKey, lambda: session.get_key(label="py-copied"))
    check(session.get_key(label="py-copy").label == "py-copy", "the first one is gone too")


@step("token objects outlive a session, session objects do not")
def _(token, session):
    with token.open(rw=True) as other:
        other.generate_key(KeyType.AES, 128, label="py-stays", store=True)
        other.generate_key(KeyType.AES, 128, label="py-goes")
        check(session.get_key(label="py-goes").label == "py-goes", "is not seen by another session")
    check(session.get_key(label="py-stays").label == "py-stays", "the token object")
    refused(pkcs11.NoSuchKey, lambda: session.get_key(label="py-goes"))
    session.get_key(label="py-stays").destroy()


@step("data objects")
def _(token, session):
    data = session.create_object({Attribute.CLASS: ObjectClass.DATA, Attribute.TOKEN: True, Attribute.LABEL: "py-data",
                                  Attribute.APPLICATION: "tests", Attribute.VALUE: DATA})
    check(data[Attribute.VALUE] == DATA, "the value")
    check(len(list(session.get_objects({Attribute.LABEL: "py-data"}))) == 1, "is not found")
    data.destroy()


@step("what a key may not do is known")
def _(token, session):
    public, private = session.generate_keypair(
        KeyType.RSA, 2048, private_template={Attribute.SIGN: False}, public_template={Attribute.VERIFY: False})
    check(not isinstance(private, pkcs11.SignMixin) and not private[Attribute.SIGN], "it may sign")
    check(not isinstance(public, pkcs11.VerifyMixin) and not public[Attribute.VERIFY], "it may verify")


@step("a read-only session makes no token objects")
def _(token, session):
    with token.open() as reading:
        refused(pkcs11.SessionReadOnly, lambda: reading.generate_key(KeyType.AES, 128, store=True))


@step("threads, each with its session")
def _(token, session):
    session.generate_key(KeyType.AES, 256, label="py-thread", store=True)
    failures = []

    def work():
        try:
            with token.open() as own:
                key = own.get_key(label="py-thread")
                for _ in range(10):
                    check(key.decrypt(key.encrypt(DATA, mechanism_param=bytes(16)), mechanism_param=bytes(16)) == DATA, "differs")
        except Exception as error:  # noqa: BLE001
            failures.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, "; ".join(failures[:3]))
    session.get_key(label="py-thread").destroy()


@step("another PIN and back")
def _(token, session):
    session.set_pin(PIN, "another-pin-77")
    session.set_pin("another-pin-77", PIN)
    refused(pkcs11.PinIncorrect, lambda: session.set_pin("wrong-pin-9999", "x" * 12))


def open_token():
    token = pkcs11.lib(MODULE).get_token(token_label=LABEL)
    return token, token.open(rw=True, user_pin=PIN)


def main():
    token, session = open_token()
    if MODE == "steps":
        for name, function in STEPS:
            try:
                function(token, session)
                print(f"ok {name}")
            except Exception as error:  # noqa: BLE001
                print(f"failed {name}: {error!r}".replace("\n", " "))
        session.close()
        check_security_officer(token)
        return
    rounds, end = 0, time.monotonic() + float(MODE)
    public, private = ec(session, label="py-loop", store=True)
    kept = session.generate_key(KeyType.AES, 256)
    while time.monotonic() < end:
        digest = hashlib.sha256(DATA).digest()
        check(public.verify(digest, private.sign(digest, mechanism=Mechanism.ECDSA), mechanism=Mechanism.ECDSA), "EC")
        check(kept.decrypt(kept.encrypt(DATA, mechanism_param=bytes(16)), mechanism_param=bytes(16)) == DATA, "AES")
        label = f"py-round-{rounds}"
        session.generate_key(KeyType.AES, 128, label=label, store=True)
        found = list(session.get_objects({Attribute.LABEL: label}))
        check(len(found) == 1, f"{len(found)} keys are called {label}")
        found[0].destroy()
        check(not list(session.get_objects({Attribute.LABEL: label})), "it is still there")
        rounds += 1
    print(f"{rounds} rounds")


def check_security_officer(token):
    name = "the security officer sets the PIN"
    try:
        with token.open(rw=True, so_pin=SO_PIN) as officer:
            officer.init_pin(PIN)
        with token.open(user_pin=PIN):
            pass
        print(f"ok {name}")
    except Exception as error:  # noqa: BLE001
        print(f"failed {name}: {error!r}".replace("\n", " "))


main()
