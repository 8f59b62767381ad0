//! Records of nodes as bytes: in keyspace 15, and in the identity of a node. Numbers are little-endian.
//!
//! ```text
//! record: version (1) | node (8) | store (8) | peers | resp | grpc | zone | replica       text: length (2) | bytes
//! ```
//!
//! An empty text for gRPC or replica says that the node does not serve it.

use bytes::{Buf, BufMut};

use crate::peers::PeerRecord;

const VERSION: u8 = 1;
/// Maximum length of an address or a zone, in bytes.
pub const TEXT_MAX: usize = 512;

/// Writes a record.
pub fn put_record(to: &mut Vec<u8>, record: &PeerRecord) {
    to.put_u8(VERSION);
    to.put_u64_le(record.node);
    to.put_u64_le(record.store);
    let texts = [&record.peers, &record.resp, record.grpc.as_deref().unwrap_or_default(), &record.zone];
    for text in texts.into_iter().chain([record.replica.as_deref().unwrap_or_default()]) {
        to.put_u16_le(text.len() as u16);
        to.put_slice(text.as_bytes());
    }
}

/// Reads a record from the front of `from`; `None` if it is damaged or of a later version.
pub fn get_record(from: &mut &[u8]) -> Option<PeerRecord> {
    from.try_get_u8().ok().filter(|version| *version == VERSION)?;
    let (node, store) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
    let mut text = || {
        let length = usize::from(from.try_get_u16_le().ok()?);
        let (text, rest) = from.split_at_checked(length)?;
        *from = rest;
        String::from_utf8(text.to_vec()).ok()
    };
    let (peers, resp, grpc, zone) = (text()?, text()?, text()?, text()?);
    let replica = text()?;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Some(PeerRecord { node, store, peers, resp, grpc: given(grpc), replica: given(replica), zone })
}

/// Checks the texts of a record of another node.
///
/// # Errors
/// A text that names the field and the limit.
pub fn check_record(record: &PeerRecord) -> Result<(), String> {
    if record.node == 0 || record.store == 0 {
        return Err("the number of a node and of its store must not be 0".into());
    }
    let grpc = record.grpc.as_deref().unwrap_or_default();
    let replica = record.replica.as_deref().unwrap_or_default();
    let fields = [
        ("peers", &*record.peers),
        ("resp", &*record.resp),
        ("grpc", grpc),
        ("replica", replica),
        ("zone", &*record.zone),
    ];
    match fields.into_iter().find(|(_, text)| text.len() > TEXT_MAX) {
        Some((field, text)) => Err(format!("{field} has {} bytes; the limit is {TEXT_MAX}", text.len())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_encoding_and_a_cut_is_damage() {
        let record = PeerRecord {
            node: 1 << 60,
            store: 2,
            peers: "10.0.0.1:7000".into(),
            resp: "host:6379".into(),
            grpc: None,
            replica: None,
            zone: "ä".into(),
        };
        for record in [
            record.clone(),
            PeerRecord { replica: Some("r:1".into()), ..record.clone() },
            PeerRecord { grpc: Some("g:1".into()), ..record },
        ] {
            let mut bytes = Vec::new();
            put_record(&mut bytes, &record);
            assert_eq!(get_record(&mut &bytes[..]), Some(record));
            for end in 0..bytes.len() {
                assert_eq!(get_record(&mut &bytes[..end]), None, "cut at {end}");
            }
            bytes[0] += 1;
            assert_eq!(get_record(&mut &bytes[..]), None, "a later version");
        }
    }

    #[test]
    fn long_text_is_refused_with_its_field() {
        let record = PeerRecord {
            node: 1,
            store: 1,
            peers: String::new(),
            resp: "r".repeat(TEXT_MAX + 1),
            grpc: None,
            replica: None,
            zone: String::new(),
        };
        assert!(check_record(&record).unwrap_err().contains("resp has 513 bytes"));
        assert!(check_record(&PeerRecord { resp: String::new(), ..record.clone() }).is_ok());
        assert!(check_record(&PeerRecord { node: 0, ..record }).is_err());
    }
}
