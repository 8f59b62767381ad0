//! Settings with which the wire is not bound.

use std::sync::Arc;

use esker_cluster::wire::{NodeIdentity, Secret, Wire, WireError};

use crate::support::{Handler, Shared, identity, settings};

async fn error(change: impl FnOnce(&mut esker_cluster::wire::WireSettings)) -> WireError {
    let mut settings = settings();
    change(&mut settings);
    Wire::bind(settings, identity(1)).await.err().expect("it is not bound")
}

#[tokio::test]
async fn address_in_use_is_named() {
    let first = Wire::bind(settings(), identity(1)).await.expect("it is bound");
    let address = first.advertised();
    let second = error(|settings| settings.listen = address.clone()).await;
    assert!(matches!(&second, WireError::InUse(of) if *of == address), "{second}");
    assert!(second.to_string().contains(&address));
    // The last handle frees the port, also of a wire that serves.
    first.serve(Arc::new(Shared(Handler::new())));
    drop(first);
    for _ in 0..6000 {
        let mut settings = settings();
        settings.listen = address.clone();
        if Wire::bind(settings, identity(1)).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the port is never free");
}

#[tokio::test]
async fn plain_connections_beyond_loopback_need_a_permission() {
    let plain = error(|settings| settings.listen = "0.0.0.0:0".into()).await;
    assert!(matches!(plain, WireError::Plain(_)), "{plain}");
    let everywhere = error(|settings| {
        settings.listen = "0.0.0.0:0".into();
        settings.allow_plain = true;
    })
    .await;
    assert!(everywhere.to_string().contains("advertise"), "{everywhere}");
    let mut allowed = settings();
    (allowed.listen, allowed.allow_plain) = ("0.0.0.0:0".into(), true);
    allowed.advertise = Some("node1.example:7001".into());
    let wire = Wire::bind(allowed, identity(1)).await.expect("it is allowed");
    assert_eq!(wire.advertised(), "node1.example:7001");
}

#[tokio::test]
async fn incomplete_settings_are_refused() {
    let open = error(|settings| settings.secret = None).await;
    assert!(open.to_string().contains("secret of the cluster or TLS"), "{open}");
    let nameless = error(|settings| settings.advertise = Some("node1".into())).await;
    assert!(nameless.to_string().contains("node1 is no address"), "{nameless}");
    let unresolved = error(|settings| settings.listen = "127.0.0.1".into()).await;
    assert!(matches!(unresolved, WireError::Bind { .. }), "{unresolved}");
    assert!(Secret::new("").is_err() && Secret::new(vec![0; 1025]).is_err());
    assert_eq!(format!("{:?}", Secret::new("hidden").expect("it is one")), "Secret");
    let no_store = NodeIdentity { store: 0, ..identity(1) };
    assert!(Wire::bind(settings(), no_store).await.is_err());
}
