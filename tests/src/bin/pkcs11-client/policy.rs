//! What a key's attributes forbid, as an application meets it. One step each; see corners.rs.

use crate::corners::{At, Outcome, Step, refused, rooms, same};
use crate::raw::{Value, Wish};
use cryptoki_sys::*;
use keyraft_tests::clients::SO_PIN;

/// The steps that want the user logged in.
pub const STEPS: &[Step] = &[
    ("CKA_WRAP_WITH_TRUSTED", wrap_with_trusted),
    ("CKA_WRAP_TEMPLATE", wrap_template),
    ("CKA_UNWRAP_TEMPLATE", unwrap_template),
    ("CKA_DERIVE_TEMPLATE", derive_template),
    ("CKA_ALWAYS_AUTHENTICATE", always_authenticate),
    ("C_SignFinal with no room, too little, and enough", sign_final_rooms),
    ("C_DigestFinal with no room, too little, and enough", digest_final_rooms),
    ("CKA_COPYABLE, CKA_MODIFIABLE, CKA_DESTROYABLE", permissions),
    ("CKA_START_DATE and CKA_END_DATE", dates),
    ("CKA_ALLOWED_MECHANISMS", allowed_mechanisms),
    ("a digest's state is saved, an encryption's is not", saved_states),
    ("messages in parts", messages),
];

const BYTES_32: Wish<'static> = (CKA_VALUE_LEN, Value::Number(32));
const LEAVES: Wish<'static> = (CKA_EXTRACTABLE, Value::Flag(true));

fn label(text: &str) -> Wish<'_> {
    (CKA_LABEL, Value::Bytes(text.as_bytes()))
}

fn key(at: &At<'_>, wishes: &[Wish<'_>]) -> Result<CK_OBJECT_HANDLE, String> {
    Ok(at.module.generate(at.session, CKM_AES_KEY_GEN, &[&[BYTES_32], wishes].concat())?)
}

fn has_label(at: &At<'_>, object: CK_OBJECT_HANDLE, right: &str) -> Outcome {
    let (code, got) = at.module.attributes(at.session, object, &[(CKA_LABEL, right.len())]);
    same((code, got[0].1.clone()), (CKR_OK, right.as_bytes().to_vec()), "the label")
}

fn wrap_with_trusted(at: &At<'_>) -> Outcome {
    let (module, session) = (at.module, at.session);
    let stored = (CKA_TOKEN, Value::Flag(true));
    // The security officer sees what is not private.
    let wrapping = key(at, &[stored, (CKA_PRIVATE, Value::Flag(false))])?;
    let guarded = key(at, &[stored, LEAVES, (CKA_WRAP_WITH_TRUSTED, Value::Flag(true))])?;
    refused(module.wrap(session, wrapping, guarded), CKR_KEY_NOT_WRAPPABLE, "by a key that nobody trusts")?;
    let trusted = [(CKA_TRUSTED, Value::Flag(true))];
    refused(module.set(session, wrapping, &trusted), CKR_ATTRIBUTE_READ_ONLY, "CKA_TRUSTED by the user")?;
    module.logout(session)?;
    module.login(session, CKU_SO, SO_PIN)?;
    module.set(session, wrapping, &trusted)?;
    module.logout(session)?;
    module.login(session, CKU_USER, at.pin)?;
    same(module.wrap(session, wrapping, guarded)?.len(), 40, "the blob's length")?;
    module.destroy(session, wrapping)?;
    Ok(module.destroy(session, guarded)?)
}

fn wrap_template(at: &At<'_>) -> Outcome {
    let demanded = [label("may leave")];
    let wrapping = key(at, &[(CKA_WRAP_TEMPLATE, Value::Template(&demanded))])?;
    let (fits, other) = (key(at, &[LEAVES, label("may leave")])?, key(at, &[LEAVES, label("may not")])?);
    same(at.module.wrap(at.session, wrapping, fits)?.len(), 40, "the blob's length")?;
    refused(at.module.wrap(at.session, wrapping, other), CKR_KEY_NOT_WRAPPABLE, "a key that does not fit")
}

/// What comes by a key with a template has what that demands, and nothing else.
fn unwrap_template(at: &At<'_>) -> Outcome {
    let demanded = [label("as demanded")];
    let wrapping = key(at, &[(CKA_UNWRAP_TEMPLATE, Value::Template(&demanded))])?;
    let blob = at.module.wrap(at.session, wrapping, key(at, &[LEAVES])?)?;
    let kind = [(CKA_CLASS, Value::Number(CKO_SECRET_KEY)), (CKA_KEY_TYPE, Value::Number(CKK_AES))];
    let unwrap = |more: &[Wish<'_>]| at.module.unwrap(at.session, wrapping, &blob, &[&kind, more].concat());
    refused(unwrap(&[label("another")]), CKR_TEMPLATE_INCONSISTENT, "another label")?;
    has_label(at, unwrap(&[])?, "as demanded")
}

fn derive_template(at: &At<'_>) -> Outcome {
    let demanded = [label("as demanded")];
    let derives = (CKA_DERIVE, Value::Flag(true));
    let (public, _) = at.module.pair(at.session, &[derives])?;
    let (_, base) =
        at.module.pair(at.session, &[derives, (CKA_DERIVE_TEMPLATE, Value::Template(&demanded))])?;
    let (code, point) = at.module.attributes(at.session, public, &[(CKA_EC_POINT, 67)]);
    same((code, point[0].0), (CKR_OK, 67), "CKA_EC_POINT")?;
    let derive = |more: &[Wish<'_>]| at.module.derive(at.session, base, &point[0].1[2..], more);
    refused(derive(&[label("another")]), CKR_TEMPLATE_INCONSISTENT, "another label")?;
    has_label(at, derive(&[])?, "as demanded")
}

fn always_authenticate(at: &At<'_>) -> Outcome {
    let wishes = [(CKA_SIGN, Value::Flag(true)), (CKA_ALWAYS_AUTHENTICATE, Value::Flag(true))];
    let (_, guarded) = at.module.pair(at.session, &wishes)?;
    let mut signature = [0; 64];
    let context = CKU_CONTEXT_SPECIFIC;
    refused(
        at.module.login(at.session, context, at.pin),
        CKR_OPERATION_NOT_INITIALIZED,
        "a proof for no operation",
    )?;
    // Each signature wants a proof of its own.
    for round in 1..=2 {
        at.module.sign_init(at.session, guarded)?;
        let (code, _) = at.module.sign_into(at.session, Some(&mut signature));
        same(code, CKR_USER_NOT_LOGGED_IN, &format!("signature {round} without a proof"))?;
        at.module.sign_init(at.session, guarded)?;
        let wrong = at.module.login(at.session, context, "wrong-pin-9999");
        refused(wrong, CKR_PIN_INCORRECT, "a wrong proof")?;
        at.module.login(at.session, context, at.pin)?;
        same(at.module.sign_into(at.session, Some(&mut signature)), (CKR_OK, 64), "with a proof")?;
    }
    same(at.module.state(at.session)?, CKS_RW_USER_FUNCTIONS, "the user is still logged in")
}

fn sign_final_rooms(at: &At<'_>) -> Outcome {
    let key = at.module.ec(at.session, false, "corner-final")?;
    at.module.sign_hashed_init(at.session, key)?;
    at.module.sign_update(at.session, b"one part, ")?;
    at.module.sign_update(at.session, b"and another")?;
    rooms(64, |buffer| at.module.sign_final_into(at.session, buffer))
}

fn digest_final_rooms(at: &At<'_>) -> Outcome {
    at.module.digest_init(at.session)?;
    at.module.digest_update(at.session, b"one part, ")?;
    rooms(32, |buffer| at.module.digest_final_into(at.session, buffer))
}

fn permissions(at: &At<'_>) -> Outcome {
    for stored in [false, true] {
        let with = |attribute| key(at, &[(CKA_TOKEN, Value::Flag(stored)), (attribute, Value::Flag(false))]);
        let (module, session) = (at.module, at.session);
        let fixed = with(CKA_MODIFIABLE)?;
        refused(module.set(session, fixed, &[label("new")]), CKR_ACTION_PROHIBITED, "a fixed one")?;
        let single = with(CKA_COPYABLE)?;
        refused(module.copy(session, single, &[]), CKR_ACTION_PROHIBITED, "a copy")?;
        module.set(session, single, &[label("new")])?;
        let lasting = with(CKA_DESTROYABLE)?;
        refused(module.destroy(session, lasting), CKR_ACTION_PROHIBITED, "the end of a lasting one")?;
        module.seal(session, lasting)?;
        module.copy(session, lasting, &[])?;
    }
    Ok(())
}

fn dates(at: &At<'_>) -> Outcome {
    for (attribute, day) in [(CKA_START_DATE, b"29990101"), (CKA_END_DATE, b"20200229")] {
        let key = key(at, &[(attribute, Value::Bytes(day))])?;
        refused(at.module.seal(at.session, key), CKR_KEY_FUNCTION_NOT_PERMITTED, "out of its time")?;
    }
    let wishes = [(CKA_START_DATE, Value::Bytes(b"20200229")), (CKA_END_DATE, Value::Bytes(b"29990101"))];
    at.module.seal(at.session, key(at, &wishes)?)?;
    Ok(())
}

fn allowed_mechanisms(at: &At<'_>) -> Outcome {
    let allowed = CKM_AES_CBC_PAD.to_ne_bytes();
    let key = key(at, &[(CKA_ALLOWED_MECHANISMS, Value::Bytes(&allowed))])?;
    refused(at.module.seal(at.session, key), CKR_MECHANISM_INVALID, "AES-ECB")?;
    at.module.encrypt_init(at.session, key)?;
    let mut room = [0; 64];
    same(at.module.encrypt_into(at.session, false, Some(&mut room)), (CKR_OK, 32), "AES-CBC-PAD")
}

fn saved_states(at: &At<'_>) -> Outcome {
    let (module, session) = (at.module, at.session);
    let nothing = module.save_state(session);
    refused(nothing, CKR_OPERATION_NOT_INITIALIZED, "the state of nothing")?;
    let (mut whole, mut again) = ([0; 32], [0; 32]);
    module.digest_init(session)?;
    module.digest_update(session, b"one part, ")?;
    let state = module.save_state(session)?;
    module.digest_update(session, b"and another")?;
    same(module.digest_final_into(session, Some(&mut whole)), (CKR_OK, 32), "C_DigestFinal")?;
    let other = module.open(at.slot, true)?;
    module.restore_state(other, &state)?;
    module.digest_update(other, b"and another")?;
    same(module.digest_final_into(other, Some(&mut again)), (CKR_OK, 32), "C_DigestFinal")?;
    same(again, whole, "the digest that went on elsewhere")?;
    let mut damaged = state;
    damaged[20] ^= 1;
    refused(module.restore_state(other, &damaged), CKR_SAVED_STATE_INVALID, "a damaged state")?;
    module.encrypt_init(other, module.aes(session, false, "corner-state")?)?;
    refused(module.save_state(other), CKR_STATE_UNSAVEABLE, "an encryption's state")?;
    Ok(module.close(other)?)
}

fn messages(at: &At<'_>) -> Outcome {
    let (module, session) = (at.module, at.session);
    let key = module.aes(session, false, "corner-messages")?;
    let (mut iv, mut tag) = ([0; 12], [0; 16]);
    module.message_init(session, true, key)?;
    let sealed =
        module.message_parts(session, true, (&mut iv, &mut tag), &[b"one part, ", b"and ", b"another"])?;
    same(sealed.len(), 21, "the ciphertext's length")?;
    if iv == [0; 12] {
        return Err("no IV was drawn".into());
    }
    module.message_init(session, false, key)?;
    let (one, two) = sealed.split_at(7);
    let clear = module.message_parts(session, false, (&mut iv, &mut tag), &[one, two])?;
    same(clear, b"one part, and another".to_vec(), "the message")?;
    tag[0] ^= 1;
    match module.message_parts(session, false, (&mut iv, &mut tag), &[one, two]) {
        Ok(_) => Err("a forged tag is taken".into()),
        Err(_) => Ok(()),
    }
}
