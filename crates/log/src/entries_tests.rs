use super::*;

fn entry(number: u64, offset: u32) -> Entry {
    let kind = if number.is_multiple_of(7) { Kind::Tombstone } else { Kind::Put };
    let key_hash = kept(number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number << 32);
    let expires_at_ms = number.is_multiple_of(5).then_some(1_749_000_000_000 + number);
    let expansion = u8::from(number.is_multiple_of(11));
    let sequence = if number.is_multiple_of(13) { number / 2 } else { number };
    Entry { key_hash, sequence, offset, bytes: 40 + 4 * (number % 3) as u32, kind, expansion, expires_at_ms }
}

fn entries(count: u64) -> Vec<Entry> {
    let mut offset = 64;
    let next = |number| {
        let entry = entry(number, offset);
        offset += entry.bytes + if number.is_multiple_of(17) { 100 } else { 0 };
        entry
    };
    (1..=count).map(next).collect()
}

#[test]
fn list_returns_the_entries_that_were_pushed() {
    let pushed = entries(1000);
    let list: EntryList = pushed.iter().copied().collect();
    assert_eq!((list.len(), list.last()), (1000, pushed.last()));
    assert!(list.iter().eq(pushed.iter().copied()) && list.clone().into_iter().eq(pushed.clone()));
    // From any position, and after more were appended.
    let mut growing = EntryList::new();
    let mut position = Position::default();
    let mut seen = Vec::new();
    for chunk in pushed.chunks(9) {
        chunk.iter().for_each(|entry| growing.push(*entry));
        let mut rest = growing.iter_from(position);
        seen.extend(rest.by_ref().take(7));
        position = rest.position();
    }
    seen.extend(growing.iter_from(position));
    assert_eq!(seen, pushed);
}

#[test]
fn list_knows_its_highest_number_and_whether_an_entry_ends() {
    let assert_facts = |list: &EntryList| {
        let ends = |e: &Entry| e.kind == Kind::Tombstone || e.expires_at_ms.is_some();
        let highest = list.iter().map(|e| e.sequence).max().unwrap_or(0);
        assert_eq!((list.max_sequence(), list.has_ends()), (highest, list.iter().any(|e| ends(&e))));
    };
    let all: EntryList = entries(500).into_iter().collect();
    let (mut body, mut lasting, mut cleared) = (Vec::new(), all.clone(), all.clone());
    all.encode_into(&mut body);
    let decoded = EntryList::decode(&body, all.len()).expect("it was encoded here");
    lasting.retain(|entry| entry.kind == Kind::Put && entry.expires_at_ms.is_none());
    cleared.clear();
    assert!(all.has_ends() && !lasting.has_ends() && !lasting.is_empty());
    [all, decoded, lasting, cleared].iter().for_each(assert_facts);
}

#[test]
fn list_of_a_part_returns_that_part() {
    let pushed = entries(500);
    let mut list: EntryList = pushed.iter().copied().collect();
    list.retain(|entry| entry.sequence % 3 == 1);
    let kept: Vec<Entry> = pushed.into_iter().filter(|entry| entry.sequence % 3 == 1).collect();
    assert!(list.iter().eq(kept));
}

#[test]
fn entry_list_of_plain_puts_stays_within_memory_bound() {
    let mut list = EntryList::new();
    for number in 0..100_000u32 {
        let key_hash = kept(u64::from(number) << 20, 1);
        let (kind, offset) = (Kind::Put, 64 + 44 * number);
        let sequence = u64::from(number) + 1;
        list.push(Entry { key_hash, sequence, offset, bytes: 44, kind, expansion: 0, expires_at_ms: None });
    }
    assert!(list.encoded_bytes() <= 100_000 * 16, "{}", list.encoded_bytes());
    assert!(list.memory_bytes() <= list.encoded_bytes() * 5 / 4 + 4096, "{}", list.memory_bytes());
}
