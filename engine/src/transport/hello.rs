//! The hello exchange, decided: who may talk to whom. Pure. Both sides check; the accepting side says why it refuses.

use super::Caller;
use super::pki::Bearer;
use crate::domain::MemberId;
use crate::wire::{Failure, FailureKind, Hello};

/// What the accepting side makes of a TCP caller's hello and certificate.
pub(super) fn judge_caller(
    ours: &Hello,
    theirs: &Hello,
    certificate: Option<&Bearer>,
    admits: impl Fn(&Bearer) -> bool,
) -> Result<Caller, Failure> {
    check_protocol(ours, theirs).map_err(forbidden)?;
    if theirs.group.is_some() && theirs.group != ours.group {
        return Err(forbidden("the caller belongs to another group: check the address".into()));
    }
    let Some(bearer) = certificate else {
        return match (theirs.group, theirs.member) {
            (None, None) => Ok(Caller::Unproven),
            _ => Err(forbidden("a member must show its certificate".into())),
        };
    };
    if Some(bearer.group()) != ours.group {
        return Err(forbidden("the certificate is one of another group".into()));
    }
    let caller = match bearer {
        Bearer::Member(named) => {
            if theirs.group.is_none() {
                return Err(forbidden("a member must say which group it is of".into()));
            }
            if theirs.member != Some(named.member) {
                let message =
                    format!("the certificate is {}'s, and the caller says to be another", named.member);
                return Err(forbidden(message));
            }
            check_lineage(ours, theirs).map_err(forbidden)?;
            Caller::Member(named.member)
        }
        Bearer::Application(named) => {
            if theirs.member.is_some() {
                let message = format!(
                    "the certificate is the client {}'s, and the caller says to be a member",
                    named.name
                );
                return Err(forbidden(message));
            }
            Caller::Application(named.name.clone())
        }
    };
    if !admits(bearer) {
        return Err(removed(bearer));
    }
    Ok(caller)
}

/// What a member that is not, or no longer, on the roster is told, and an application that is not on the list.
pub(super) fn removed(bearer: &Bearer) -> Failure {
    forbidden(match bearer {
        Bearer::Member(named) => format!(
            "{} with this certificate is not on this member's roster: if it was removed, join again with a new \
             invitation; if it has just joined, this member will learn of it",
            named.member
        ),
        Bearer::Application(named) => format!(
            "the client '{}' with this certificate is not on this member's list: if it was removed, let an operator \
             add it again with 'keyraft client add'; if it has just been added, this member will learn of it",
            named.name
        ),
    })
}

/// What a local client's hello is worth: its protocol must be ours.
pub(super) fn judge_local(theirs: &Hello) -> Result<(), Failure> {
    check_protocol(&Hello::anonymous(), theirs).map_err(forbidden)
}

/// What the connecting side makes of the answer: the member it meant, of its own group and history.
pub(super) fn judge_member(ours: &Hello, theirs: &Hello, meant: MemberId) -> Result<(), String> {
    check_protocol(ours, theirs)?;
    if theirs.group != ours.group {
        return Err("it belongs to another group".into());
    }
    if theirs.member != Some(meant) {
        return Err(format!("it does not say to be {meant}"));
    }
    check_lineage(ours, theirs)
}

/// What a joiner or local client makes of the answer.
pub(super) fn judge_protocol(theirs: &Hello) -> Result<(), String> {
    check_protocol(&Hello::anonymous(), theirs)
}

fn check_protocol(ours: &Hello, theirs: &Hello) -> Result<(), String> {
    if ours.protocol == theirs.protocol {
        return Ok(());
    }
    Err(format!(
        "one side speaks protocol {}, the other {}: use the same keyraft version on both",
        ours.protocol, theirs.protocol
    ))
}

fn check_lineage(ours: &Hello, theirs: &Hello) -> Result<(), String> {
    match theirs.lineage.cmp(&ours.lineage) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(format!(
            "the peer is of the older history {}, the group of {}: the older member must join again as a new one",
            theirs.lineage, ours.lineage
        )),
        std::cmp::Ordering::Greater => Err(format!(
            "this member is of the older history {}, the peer of {}: the older member must join again as a new one",
            ours.lineage, theirs.lineage
        )),
    }
}

fn forbidden(message: String) -> Failure {
    Failure::new(FailureKind::Forbidden, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Fingerprint, GroupId, Lineage};
    use crate::transport::pki::{Named, NamedApplication};
    use crate::wire::{Lane, PROTOCOL};

    const GROUP: GroupId = GroupId([1; 8]);
    const TLS: Fingerprint = Fingerprint([2; 32]);

    fn hello(member: u64) -> Hello {
        let member = Some(MemberId(member));
        Hello { protocol: PROTOCOL, group: Some(GROUP), lineage: Lineage(2), member, lane: Lane::Bulk }
    }

    fn judge_bearer(theirs: &Hello, bearer: &Bearer, listed: bool) -> Result<Caller, Failure> {
        judge_caller(&hello(1), theirs, Some(bearer), |_| listed)
    }

    #[test]
    fn applications_say_nothing_and_are_known_by_their_certificate() {
        let name = "web".parse().expect("a name");
        let bearer = Bearer::Application(NamedApplication { group: GROUP, name, tls: TLS });
        let theirs = Hello::application();
        let known = judge_bearer(&theirs, &bearer, true);
        assert_eq!(known, Ok(Caller::Application("web".parse().expect("a name"))));
        let refused = |theirs: &Hello, bearer: &Bearer, listed, why: &str| {
            let failure = judge_bearer(theirs, bearer, listed).expect_err(why);
            assert!(failure.kind == FailureKind::Forbidden && failure.message.contains(why), "{failure}");
        };
        refused(&theirs, &bearer, false, "not on this member's list");
        refused(&hello(2), &bearer, true, "says to be a member");
        let Bearer::Application(mut named) = bearer else { panic!("is one") };
        named.group = GroupId([9; 8]);
        refused(&theirs, &Bearer::Application(named), true, "another group");
    }

    fn judge(change: impl Fn(&mut Hello, &mut Option<Named>)) -> Result<Caller, Failure> {
        let mut theirs = hello(2);
        let mut named = Some(Named { group: GROUP, member: MemberId(2), tls: TLS });
        change(&mut theirs, &mut named);
        let bearer = named.map(Bearer::Member);
        let listed =
            |bearer: &Bearer| matches!(bearer, Bearer::Member(n) if n.member == MemberId(2) && n.tls == TLS);
        judge_caller(&hello(1), &theirs, bearer.as_ref(), listed)
    }

    #[test]
    fn members_and_joiners_are_told_apart() {
        assert_eq!(judge(|_, _| ()), Ok(Caller::Member(MemberId(2))));
        assert_eq!(judge(|hello, named| (*hello, *named) = (Hello::anonymous(), None)), Ok(Caller::Unproven));
    }

    #[test]
    fn whoever_is_wrong_is_refused_with_the_reason() {
        type Change = fn(&mut Hello, &mut Option<Named>);
        let cases: [(Change, &str); 10] = [
            (|hello, _| hello.protocol += 1, "same keyraft version"),
            (|hello, _| hello.group = Some(GroupId([9; 8])), "another group"),
            (|hello, _| hello.group = None, "which group"),
            (|_, named| named.as_mut().expect("named").group = GroupId([9; 8]), "another group"),
            (|hello, _| hello.lineage = Lineage(1), "older history l1"),
            (|hello, _| hello.lineage = Lineage(3), "this member is of the older history l2"),
            (|hello, _| hello.member = Some(MemberId(3)), "certificate is m2's"),
            (|hello, _| hello.member = None, "certificate is m2's"),
            (|_, named| *named = None, "must show its certificate"),
            (
                |_, named| named.as_mut().expect("named").tls = Fingerprint([9; 32]),
                "not on this member's roster",
            ),
        ];
        for (change, message) in cases {
            let failure = judge(change).expect_err(message);
            assert_eq!(failure.kind, FailureKind::Forbidden);
            assert!(failure.message.contains(message), "{failure}");
        }
    }

    #[test]
    fn the_connecting_side_checks_too() {
        let check = |change: fn(&mut Hello)| {
            let mut theirs = hello(1);
            change(&mut theirs);
            judge_member(&hello(2), &theirs, MemberId(1))
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert!(check(|hello| hello.protocol = 9).is_err());
        assert!(check(|hello| hello.group = None).is_err());
        assert!(check(|hello| hello.member = Some(MemberId(3))).is_err());
        assert!(check(|hello| hello.lineage = Lineage(1)).is_err());
        assert!(check(|hello| hello.lineage = Lineage(3)).is_err());
    }
}
