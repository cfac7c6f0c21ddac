//! The group's birth, its members, its invitations and the in-sync set.

use super::apply::{Applied, cut_reason, malformed};
use super::{
    Bootstrap, Duty, Effects, Group, Invite, InviteId, LeaveReason, Member, Outcome, Rejection, Standing,
    State, WayBack,
};
use crate::clock::UnixMillis;
use crate::domain::{LogIndex, MemberCard, MemberId};
use crate::limits::{
    CARD_KINDS_MAX, CARD_MECHANISMS_MAX, INVITES_MAX, MEMBERS_MAX, PUBLIC_KEY_MAX_BYTES, TEXT_MAX_BYTES,
};

/// The first member of a group.
const FIRST_MEMBER: MemberId = MemberId(1);

fn changed() -> Effects {
    Effects { roster: true, ..Effects::default() }
}

impl State {
    pub(super) fn bootstrap(&mut self, index: LogIndex, bootstrap: Bootstrap) -> Applied {
        if self.group.is_some() {
            return Err(Rejection::AlreadyBootstrapped);
        }
        let Bootstrap { group, lineage, label, card, smk, authority, options } = bootstrap;
        check_card(&card)?;
        if label.is_empty() || label.len() > TEXT_MAX_BYTES {
            return Err(malformed("the label is empty or too long"));
        }
        if smk.self_blob.is_empty() || smk.self_blob.len() > PUBLIC_KEY_MAX_BYTES {
            return Err(malformed("the SMK's own blob is empty or too long"));
        }
        self.group = Some(Group { id: group, lineage, label, authority });
        self.options = options;
        self.set_isolated_service(index, options.isolated_service);
        self.smks.insert(smk.generation, smk);
        self.members.insert(FIRST_MEMBER, Member::new(card, Standing::InSync, Duty::Active, index));
        self.next_member = FIRST_MEMBER.0 + 1;
        self.next_object = 1;
        Ok(changed())
    }

    pub(super) fn open_invite(
        &mut self,
        id: InviteId,
        secret_hash: [u8; 32],
        expires: UnixMillis,
        at: UnixMillis,
        duty: Duty,
    ) -> Applied {
        self.drop_expired(at);
        if self.invites.contains_key(&id) || expires <= at {
            return Err(Rejection::InviteInvalid);
        }
        if self.invites.len() >= INVITES_MAX {
            return Err(Rejection::TooManyInvites);
        }
        self.invites.insert(id, Invite { secret_hash, expires, duty });
        Ok(changed())
    }

    pub(super) fn admit(
        &mut self,
        index: LogIndex,
        invite: InviteId,
        at: UnixMillis,
        card: MemberCard,
    ) -> Applied {
        self.drop_expired(at);
        let duty = self.invites.get(&invite).map(|open| open.duty).ok_or(Rejection::InviteInvalid)?;
        if self.members.len() >= MEMBERS_MAX {
            return Err(Rejection::TooManyMembers);
        }
        check_card(&card)?;
        self.check_unique(&card, None)?;
        self.invites.remove(&invite);
        let id = MemberId(self.next_member);
        self.next_member += 1;
        self.members.insert(id, Member::new(card, Standing::OutOfSync(None), duty, index));
        Ok(Effects { outcome: Outcome::Admitted(id), ..changed() })
    }

    /// Drops what nobody can use any more. Time comes from the command, so every member drops the same.
    fn drop_expired(&mut self, at: UnixMillis) {
        let over: Vec<InviteId> =
            self.invites.iter().filter(|(_, invite)| invite.expires <= at).map(|(id, _)| *id).collect();
        for id in over {
            self.invites.remove(&id);
        }
    }

    pub(super) fn announce(&mut self, index: LogIndex, id: MemberId, card: MemberCard) -> Applied {
        check_card(&card)?;
        self.check_unique(&card, Some(id))?;
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        member.card = card;
        member.index = index;
        Ok(changed())
    }

    pub(super) fn set_priority(&mut self, index: LogIndex, id: MemberId, priority: u8) -> Applied {
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        member.priority = priority;
        member.index = index;
        Ok(changed())
    }

    /// Settlements that waited for the member wait no longer: it is not required any more.
    pub(super) fn remove_member(&mut self, id: MemberId) -> Applied {
        self.check_not_last(id)?;
        self.members.remove(&id);
        self.reserved.remove(&id);
        self.forget_fence_of(id);
        Ok(changed())
    }

    pub(super) fn enter_in_sync(&mut self, index: LogIndex, id: MemberId) -> Applied {
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        if !matches!(member.standing, Standing::OutOfSync(_)) {
            return Err(Rejection::WrongStanding(id));
        }
        if matches!(member.standing, Standing::OutOfSync(Some(_))) {
            member.way_back.tries = member.way_back.tries.saturating_add(1);
        }
        member.standing = Standing::Entering(index);
        member.index = index;
        Ok(changed())
    }

    pub(super) fn reach_in_sync(&mut self, index: LogIndex, id: MemberId, reached: LogIndex) -> Applied {
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        match member.standing {
            Standing::Entering(entered) if reached >= entered => {
                member.standing = Standing::InSync;
                member.way_back = WayBack::default();
                member.index = index;
                Ok(changed())
            }
            _ => Err(Rejection::WrongStanding(id)),
        }
    }

    pub(super) fn leave_in_sync(&mut self, index: LogIndex, id: MemberId, reason: LeaveReason) -> Applied {
        self.check_not_last(id)?;
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        if matches!(member.standing, Standing::OutOfSync(_)) {
            return Err(Rejection::WrongStanding(id));
        }
        member.standing = Standing::OutOfSync(Some(cut_reason(reason)));
        member.index = index;
        Ok(changed())
    }

    /// Members out of sync count as active ones: they come back.
    pub(super) fn set_duty(&mut self, index: LogIndex, id: MemberId, duty: Duty) -> Applied {
        let others = self.members.iter().any(|(other, member)| *other != id && member.duty == Duty::Active);
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        if member.duty == duty {
            return Ok(Effects::default());
        }
        if duty == Duty::Standby && !others {
            return Err(Rejection::LastActive(id));
        }
        member.duty = duty;
        member.index = index;
        Ok(changed())
    }

    pub(super) fn count_retry(&mut self, index: LogIndex, id: MemberId) -> Applied {
        let member = self.left(id)?;
        member.way_back.tries = member.way_back.tries.saturating_add(1);
        member.index = index;
        Ok(changed())
    }

    /// Nothing to do for a member that is in sync or on its way.
    pub(super) fn recover(&mut self, index: LogIndex, id: MemberId) -> Applied {
        match self.left(id) {
            Ok(member) => {
                member.way_back.called = true;
                member.index = index;
                Ok(changed())
            }
            Err(Rejection::WrongStanding(_)) => Ok(Effects::default()),
            Err(other) => Err(other),
        }
    }

    /// A member that has left the in-sync set.
    fn left(&mut self, id: MemberId) -> Result<&mut Member, Rejection> {
        let member = self.members.get_mut(&id).ok_or(Rejection::NoSuchMember(id))?;
        match member.standing {
            Standing::OutOfSync(Some(_)) => Ok(member),
            _ => Err(Rejection::WrongStanding(id)),
        }
    }

    /// Entering members do not count: they may lack any key.
    fn check_not_last(&self, id: MemberId) -> Result<(), Rejection> {
        let member = self.members.get(&id).ok_or(Rejection::NoSuchMember(id))?;
        if member.standing == Standing::InSync && self.in_sync().len() == 1 {
            return Err(Rejection::LastInSync(id));
        }
        Ok(())
    }

    fn check_unique(&self, card: &MemberCard, but: Option<MemberId>) -> Result<(), Rejection> {
        for (_, other) in self.members.iter().filter(|(id, _)| Some(**id) != but) {
            if other.card.name == card.name {
                return Err(Rejection::MemberExists(card.name.clone()));
            }
            if other.card.address == card.address {
                return Err(Rejection::MemberExists(card.address.clone()));
            }
        }
        Ok(())
    }
}

fn check_card(card: &MemberCard) -> Result<(), Rejection> {
    let token = &card.profile.identity;
    let texts = [&token.manufacturer, &token.model, &token.serial, &token.label];
    if card.name.is_empty() || card.address.is_empty() || card.transport_key.is_empty() {
        return Err(malformed("a card needs a name, an address and a transport key"));
    }
    if texts.into_iter().chain([&card.name, &card.address]).any(|text| text.len() > TEXT_MAX_BYTES) {
        return Err(malformed("a text on the card is too long"));
    }
    if card.transport_key.len() > PUBLIC_KEY_MAX_BYTES
        || card.profile.carries.len() > CARD_KINDS_MAX
        || card.profile.carries_in_memory.len() > CARD_KINDS_MAX
        || card.profile.mechanisms.len() > CARD_MECHANISMS_MAX
    {
        return Err(malformed("the card's transport key or its list of kinds is too long"));
    }
    Ok(())
}
