//! gRPC clients and their requests.

use base64ct::{Base64, Encoding};
use esker_server::{Access, Config, Password, Right, UserEntry, UserFile};
use tempfile::TempDir;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

pub(crate) use crate::running::{PATIENCE, Running, here};

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
pub(crate) mod pb {
    include!("../../src/grpc/generated/esker.v1.rs");
}

pub(crate) type Client = pb::esker_client::EskerClient<Channel>;

/// gRPC without a password, on this machine.
pub(crate) fn plain() -> Config {
    Config { grpc: vec![here()], ..Config::resp(here()) }
}

/// gRPC with a password.
pub(crate) fn locked(password: &str) -> Config {
    Config { access: Access { password: Some(Password::new(password)), ..Access::default() }, ..plain() }
}

/// Creates a users file whose users have the password `pass` and access to keys with the prefix `mine:`. Returns its directory,
/// the file, and the access settings.
pub(crate) fn users(of: &[(&str, &[Right])]) -> (TempDir, UserFile, Access) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut users = UserFile::default();
    for (name, rights) in of {
        let prefixes = vec!["mine:".to_owned()];
        let mut entry = UserEntry { rights: rights.to_vec(), prefixes, ..UserEntry::default() };
        entry.set_password("pass").expect("there are random numbers");
        users.set(name, entry).unwrap();
    }
    users.write(&path).unwrap();
    (directory, users, Access { users: Some(path), ..Access::default() })
}

impl Running {
    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc[0])).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }
}

/// A request with name and password.
pub(crate) fn from<T>(message: T, name: &str, password: &str) -> Request<T> {
    let coded = Base64::encode_string(format!("{name}:{password}").as_bytes());
    with_authorization(message, &format!("Basic {coded}"))
}

pub(crate) fn with_authorization<T>(message: T, text: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", MetadataValue::try_from(text).unwrap());
    request
}

/// Checks code and reason; returns the metadata of the reason.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) -> std::collections::HashMap<String, String> {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), code, "{status:?}");
    let info = status.get_details_error_info().expect("there are details");
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "esker"), "{status:?}");
    info.metadata
}

pub(crate) fn key(text: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn get(text: &str) -> pb::GetRequest {
    pb::GetRequest { key: key(text), range: None }
}

pub(crate) fn put(at: &str, value: impl Into<bytes::Bytes>) -> pb::PutRequest {
    pb::PutRequest { key: key(at), value: value.into(), ..Default::default() }
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}
