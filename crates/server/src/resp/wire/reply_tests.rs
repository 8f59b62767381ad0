//! Tests of answers that are kept by reference, removed, limited and moved.

use super::*;

fn sent(replies: &mut Replies, at_once: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while replies.unsent_bytes() > 0 {
        let (pieces, count) = replies.unsent::<4>();
        let taken: Vec<u8> =
            pieces[..count].iter().flat_map(|piece| piece.iter().copied()).take(at_once).collect();
        replies.mark_sent(taken.len());
        all.extend(taken);
    }
    all
}

#[test]
fn large_values_are_sent_as_they_are_and_in_their_place() {
    let large = |byte, more| Bytes::from(vec![byte; HANDED_BYTES_MIN + more]);
    for at_once in [1, 7, HANDED_BYTES_MIN, 1 << 20] {
        let (mut replies, mut expected) = (Replies::new(), Replies::new());
        for value in [large(b'a', 0), large(b'b', 1), Bytes::from_static(b"small"), large(b'c', 5)] {
            replies.value(&value);
            expected.bulk(&value);
        }
        assert_eq!(replies.handed.len(), 3);
        assert_eq!(replies.unsent_bytes(), expected.unsent_bytes());
        assert!(replies.bytes.capacity() < 1 << 10, "values were copied");
        assert!(replies.held_bytes() > 3 * HANDED_BYTES_MIN, "values are not counted");
        replies.mark_sent(100);
        assert!(replies.held_bytes() > 3 * HANDED_BYTES_MIN, "a partly sent value is held completely");
        expected.mark_sent(100);
        assert!(sent(&mut replies, at_once) == sent(&mut expected, 1 << 20), "{at_once} at once");
        assert_eq!((replies.unsent_bytes(), replies.handed.len(), replies.handed_held), (0, 0, 0));
    }
}

#[test]
fn answers_are_taken_back_with_their_values() {
    let (first, second) =
        (Bytes::from(vec![1; HANDED_BYTES_MIN]), Bytes::from(vec![2; 2 * HANDED_BYTES_MIN]));
    let mut replies = Replies::new();
    replies.value(&first);
    replies.mark_sent(100);
    let (mark, unsent) = (replies.mark(), replies.unsent_bytes());
    replies.value(&second);
    replies.simple("OK");
    replies.cut(mark);
    assert_eq!((replies.mark(), replies.unsent_bytes(), replies.handed.len()), (mark, unsent, 1));
    let rest = sent(&mut replies, 1 << 20);
    assert!(rest.len() == unsent && rest.ends_with(b"\x01\r\n"));
}

#[test]
fn answers_are_cut_short_where_they_must_be() {
    let mut replies = Replies::new();
    replies.simple("OK");
    let mark = replies.mark();
    replies.limit(10);
    replies.bulk(b"1234");
    assert!(!replies.unlimit());
    replies.cut(mark);
    replies.limit(9);
    replies.bulk(b"1234");
    replies.null();
    replies.value(&Bytes::from(vec![0; HANDED_BYTES_MIN]));
    assert!(replies.mark() <= mark + 9 && replies.unlimit());
    replies.cut(mark);
    replies.bulk(b"1234");
    assert!(!replies.unlimit());
    assert_eq!(sent(&mut replies, 100), b"+OK\r\n$4\r\n1234\r\n");
}

#[test]
fn answers_are_moved_with_their_values() {
    let large = Bytes::from(vec![7; HANDED_BYTES_MIN]);
    let (mut made, mut replies, mut expected) = (Replies::new(), Replies::new(), Replies::new());
    let mut ends = Vec::new();
    for value in [b"a".as_slice(), &large, &large, b"b"] {
        made.value(&Bytes::copy_from_slice(value));
        ends.push(made.mark());
    }
    let mut from = 0;
    for (end, value) in ends.into_iter().zip([b"a".as_slice(), &large, &large, b"b"]) {
        replies.integer(1);
        made.move_to(&mut replies, end - from);
        from = end;
        expected.integer(1);
        expected.bulk(value);
    }
    assert_eq!((made.unsent_bytes(), made.handed_held), (0, 0));
    assert_eq!((replies.handed.len(), replies.handed_held), (2, 2 * HANDED_BYTES_MIN));
    assert!(sent(&mut replies, 1000) == sent(&mut expected, 1000));
}
