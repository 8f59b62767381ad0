//! Fuzzing entry point: decodes every message type that a client can send.

use prost::Message;

use super::pb;

/// Decodes the bytes as each request type. A decoded request must survive encoding and decoding unchanged.
pub fn messages(bytes: &[u8]) {
    decode::<pb::GetRequest>(bytes);
    decode::<pb::MultiGetRequest>(bytes);
    decode::<pb::PutRequest>(bytes);
    decode::<pb::DeleteRequest>(bytes);
    decode::<pb::CompareAndSwapRequest>(bytes);
    decode::<pb::HeadRequest>(bytes);
    decode::<pb::IncrementRequest>(bytes);
    decode::<pb::TouchRequest>(bytes);
    decode::<pb::TxnRequest>(bytes);
    decode::<pb::BatchRequest>(bytes);
    decode::<pb::ScanRequest>(bytes);
    decode::<pb::UploadRequest>(bytes);
    decode::<pb::DownloadRequest>(bytes);
    decode::<pb::WatchRequest>(bytes);
    decode::<pb::StatsRequest>(bytes);
}

fn decode<M: Message + Default + PartialEq>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let again = M::decode(&message.encode_to_vec()[..]);
    assert!(again.is_ok_and(|again| again == message), "a message is not what it was");
}
