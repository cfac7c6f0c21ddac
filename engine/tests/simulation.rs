//! What only a process shows that simulates: a token that hangs, seen in virtual time.

use keyraft_engine::domain::{GroupId, Mechanism, ObjectId};
use keyraft_engine::limits;
use keyraft_engine::simulation;
use keyraft_engine::token::{
    ModelToken, ModuleSource, Pin, SlotChoice, Token, TokenConfig, TokenError, UsedKey, initialize,
};
use keyraft_engine::wire::UseKind;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_hung_token_is_noticed_and_heals() {
    simulation::begin(|| Duration::ZERO);
    let model = ModelToken::new(0);
    let source = ModuleSource::Model(model.clone());
    let pin = Pin::new("12345678".into());
    initialize(&source, "unit", &pin, &pin).expect("a blank one is made a token");
    let config = TokenConfig { source, slot: SlotChoice::Only, pin: Some(pin), residency: None };
    let token = Token::open(config).expect("it opens");
    token.bind(GroupId([1; 8]));
    let locked = token.lock(b"by what getrandom gives").await.expect("it has an unlock key");
    assert_eq!(token.unlock(&locked).await.expect("it is its own").as_slice(), b"by what getrandom gives");

    model.set_hung(true);
    let began = Instant::now();
    let waits = tokio::spawn({
        let token = token.clone();
        async move { token.random(16).await }
    });
    while token.hangs().is_none() {
        assert!(!waits.is_finished() && began.elapsed() <= limits::ATTEMPT);
        sleep(limits::TOKEN_LOOK_EVERY).await;
    }
    assert_eq!(began.elapsed(), limits::ATTEMPT);
    assert!(matches!(waits.await.expect("it ends"), Err(TokenError::Hangs(_))));
    assert!(matches!(token.random(16).await, Err(TokenError::Hangs(_))));
    let (key, mechanism) = (UsedKey::Agreed(ObjectId(1)), Mechanism::plain(0x1081));
    let now = token.operate_now(&key, &UseKind::Encrypt, &mechanism, &[0; 16]);
    assert!(matches!(now, Err(TokenError::Busy(_))), "nobody can wait there");
    assert_eq!(began.elapsed(), limits::ATTEMPT);

    model.set_hung(false);
    token.canary().await.expect("it sings");
    assert_eq!(token.hangs(), None);
    assert_eq!(token.random(16).await.expect("it works").len(), 16);
}
