//! How fast tokens are. Run by hand, in release mode: `cargo test --release -p keyraft-tests --test token_contract
//! speed -- --ignored --nocapture`.

use crate::bench::{Bench, G1, Group, asked, case, group, record, sign};
use keyraft_engine::domain::{
    ContentKey, Curve, EnvelopeContent, KeyAlgorithm, Mechanism, ObjectId, Residency, Version,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

case!(
    #[ignore = "measures; prints figures"]
    originate_import_and_sign,
    |bench: Bench| async move {
        let all = [
            (bench.embedded("embedded", Residency::Session), 10_000u64),
            (bench.softhsm("softhsm", Residency::Session), 2_000),
            (bench.softhsm("softhsm-token", Residency::Token), 300),
        ];
        for (config, count) in all {
            let what = format!("{:?} {:?}", config.slot, config.residency);
            measure(&what, config, count).await;
        }
    }
);

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

async fn measure(what: &str, config: keyraft_engine::token::TokenConfig, count: u64) {
    let Group { tokens, .. } = group(vec![config]).await;
    let token = tokens[0].clone();
    let kind = KeyAlgorithm::Ec(Curve::P256);
    let start = now();
    let mut contents = Vec::new();
    for object in 1..=count {
        let made = token.originate(G1, kind, &asked(kind)).await.expect("a key");
        let record = record(kind, &asked(kind), &made);
        let name = ContentKey { object: ObjectId(object), version: Version(1), generation: G1 };
        contents.push((name, EnvelopeContent { record, wrapped: made.wrapped }));
    }
    let rate = |start: Instant, n: u64| n as f64 / start.elapsed().as_secs_f64();
    println!("{what}: originate {:.0}/s", rate(start, count));
    let batches: Vec<Vec<_>> = contents.chunks(64).map(<[_]>::to_vec).collect();
    let start = now();
    for batch in &batches {
        token.import_many(batch.clone()).await.into_iter().for_each(|done| done.expect("an import"));
    }
    println!("{what}: import {:.0}/s", rate(start, count));
    let start = now();
    for batch in &batches {
        let again = batch.iter().cloned().map(|(name, c)| (ContentKey { version: Version(3), ..name }, c));
        token.import_many(again.collect()).await.into_iter().for_each(|done| done.expect("an import"));
    }
    println!("{what}: replace {:.0}/s", rate(start, count));
    let stop = Arc::new(AtomicBool::new(false));
    let signed = Arc::new(AtomicU64::new(0));
    let signers: Vec<_> = (0..8u64)
        .map(|lane| {
            let (token, stop, signed) = (token.clone(), stop.clone(), signed.clone());
            tokio::spawn(async move {
                let mut object = lane;
                while !stop.load(Ordering::Relaxed) {
                    object = object % count + 1;
                    // Beside imports a key may just be away.
                    if sign(&token, object, &Mechanism::plain(0x1041), &[7; 32]).await.is_ok() {
                        signed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let start = now();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    println!("{what}: sign {:.0}/s", rate(start, signed.swap(0, Ordering::Relaxed)));
    let start = now();
    let mut imported = 0;
    for batch in &batches {
        let next = batch
            .iter()
            .cloned()
            .map(|(name, content)| (ContentKey { version: Version(2), ..name }, content));
        token.import_many(next.collect()).await.into_iter().for_each(|done| done.expect("an import"));
        imported += batch.len() as u64;
    }
    let (signs, imports) = (rate(start, signed.load(Ordering::Relaxed)), rate(start, imported));
    println!("{what}: side by side: sign {signs:.0}/s, import {imports:.0}/s");
    stop.store(true, Ordering::Relaxed);
    for signer in signers {
        signer.await.expect("a signer");
    }
    for token in tokens {
        token.close().await;
    }
}
