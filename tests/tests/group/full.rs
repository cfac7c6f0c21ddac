//! A token that is full on one healthy member.

use keyraft_engine::domain::KeyAlgorithm;
use keyraft_engine::wire::FailureKind;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::keys::{create_at, list, prove};
use keyraft_tests::{Group, root, turn};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "keyraft-test"])
            .arg(at)
            .status()
            .expect("runs mount");
        assert!(done.success(), "mount -t tmpfs at {} failed: {done}", at.display());
        Self(at.to_path_buf())
    }

    /// Writes a file until nothing more fits.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("is made");
        for size in [64 * 1024, 4096, 512, 1] {
            let block = vec![0; size];
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("warning: {} is still mounted", self.0.display());
        }
    }
}

#[tokio::test]
async fn a_full_token_refuses_the_key_and_stays_in_service() {
    if !root("mounting a small file system") {
        return;
    }
    let _turn = turn().await;
    let mut group = Group::prepare(&[Embedded, SoftHsm, Embedded]);
    let small = Small::mount(&group.members[1].token(SoftHsm));
    group.begin().await;
    let algorithm = KeyAlgorithm::Aes { bits: 256 };
    let kept = create_at(&group.members[0].socket, "kept", algorithm).await.expect("there is room");
    let full = group.members[1].id;

    let filler = small.fill();
    for member in &group.members {
        let failure = create_at(&member.socket, "too many", algorithm).await.expect_err("there is no room");
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
        let text = failure.to_string();
        assert!(text.starts_with(&format!("{full} ('")) && text.contains(" refused the key: "), "{text}");
        eprintln!("{failure}");
    }
    // It is in sync, serves what it has, and nothing is left behind of what was refused.
    group.wait_in_sync().await;
    prove(&group.members[1].socket, &kept, full, &[full]).await;
    for member in &group.members {
        assert_eq!(list(&member.socket).await.len(), 1);
    }

    std::fs::remove_file(filler).expect("is removed");
    let more =
        create_at(&group.members[1].socket, "room again", algorithm).await.expect("there is room again");
    prove(&group.members[1].socket, &more, full, &[full]).await;
    group.wait_in_sync().await;
}
