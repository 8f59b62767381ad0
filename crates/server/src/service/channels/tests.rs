use std::time::Duration;

use super::*;
use crate::base::address::Origin;
use crate::budget::Budget;

/// Matches names that begin with a letter, and counts the calls made while the lock was held.
struct Begins {
    letter: u8,
    channels: Arc<Channels>,
    was_locked: Arc<AtomicUsize>,
}

impl Matches for Begins {
    fn matches(&self, channel: &[u8]) -> bool {
        if self.channels.subscribed.try_lock().is_err() {
            self.was_locked.fetch_add(1, Ordering::Relaxed);
        }
        channel.first() == Some(&self.letter)
    }
}

#[test]
fn patterns_are_matched_while_others_go_on() {
    let budget = Budget::new(1 << 20, 1 << 20, Duration::ZERO);
    let channels = Arc::new(Channels::new(1 << 20, budget.share(Origin::User(0), 0)));
    let was_locked = Arc::<AtomicUsize>::default();
    let pattern = |letter: u8| {
        let (channels, was_locked) = (channels.clone(), was_locked.clone());
        let name = Bytes::from(vec![letter, b'*']);
        HashMap::from([(name, Arc::new(Begins { letter, channels, was_locked }))])
    };
    let (one, other) = (Channels::mailbox(), Channels::mailbox());
    let b = Bytes::from_static(b"b*");
    assert!(channels.subscribe_patterns(&pattern(b'a'), 1, &one));
    assert_eq!(channels.publish(Kind::Channel, b"ab", b"1"), 1);
    assert_eq!(channels.publish(Kind::Channel, b"b", b"nobody hears"), 0);
    // A change between two messages applies to the second.
    assert!(channels.subscribe_patterns(&pattern(b'b'), 1, &one));
    assert!(channels.subscribe_patterns(&pattern(b'b'), 2, &other));
    assert_eq!(channels.receivers(Kind::Channel, b"b"), 2);
    assert_eq!(channels.publish(Kind::Channel, b"b", b"2"), 2);
    assert_eq!(channels.publish(Kind::Shard, b"b", b"of another kind"), 0);
    channels.unsubscribe(Kind::Pattern, &b, 1);
    assert_eq!(channels.publish(Kind::Channel, b"b", b"3"), 1);
    channels.unsubscribe(Kind::Pattern, &b, 2);
    assert_eq!(channels.publish(Kind::Channel, b"b", b"nobody hears"), 0);
    let said = |mailbox: &Mailbox| -> Vec<Bytes> {
        let letters = std::iter::from_fn(|| channels.take(mailbox));
        letters
            .map(|letter| match letter {
                Letter::Message(Message { payload, .. }) => payload,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!((said(&one), said(&other)), (vec!["1".into(), "2".into()], vec!["2".into(), "3".into()]));
    assert_eq!(was_locked.load(Ordering::Relaxed), 0);
}
