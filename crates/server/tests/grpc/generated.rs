//! The generated code of the published `.proto` is checked in, so that a build needs neither the `.proto` nor a compiler for it.

use std::path::{Path, PathBuf};

use protox::prost::Message;

/// Environment variable that regenerates the files.
const RENEW: &str = "ESKER_GENERATE";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn generated_code_is_what_the_proto_says() {
    let proto = repository().join("proto");
    let descriptors = protox::compile([proto.join("esker/v1/esker.proto")], [&proto]).unwrap();
    // Reflection needs no comments, and they enlarge the descriptor set.
    let mut bare = descriptors.clone();
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    let made = tempfile::tempdir().unwrap();
    std::fs::write(made.path().join("esker.v1.bin"), bare.encode_to_vec()).unwrap();
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .btree_map(".")
        .out_dir(made.path())
        .compile_fds(descriptors)
        .unwrap();
    for name in ["esker.v1.rs", "esker.v1.bin"] {
        let (fresh, kept) =
            (made.path().join(name), repository().join("crates/server/src/grpc/generated").join(name));
        if std::env::var_os(RENEW).is_some() {
            std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
            std::fs::copy(&fresh, &kept).unwrap();
        }
        let same = std::fs::read(&fresh).unwrap() == std::fs::read(&kept).unwrap_or_default();
        assert!(same, "{name} is not what the .proto says; run this test with {RENEW}=1");
    }
}
