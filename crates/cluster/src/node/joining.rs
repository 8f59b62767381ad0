//! The way of a store into a cluster: it founds one, joins one, or is a member already.

use std::sync::Arc;
use std::time::Duration;

use esker_device::Runtime;
use esker_engine::{GroupLog, Store};
use futures_util::future::{Either, select};

use super::core::{PATIENCE, own_record};
use super::error::NodeError;
use super::identity::{Identity, Phase};
use super::settings::{Begin, NodeSettings};
use crate::peers::{PeerRecord, PeerRequest, PeerResponse, Peers};

/// Pauses between two rounds over the addresses to join: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Addresses that are asked one after the other, each named by the one before.
const HOPS_MAX: usize = 4;

/// Returns the identity that the store has, or draws one, durably. The store joins afterwards if its phase is `Joining`.
///
/// # Errors
/// If the store must not begin as the settings say.
pub(super) async fn identify(
    store: &Store,
    log: &GroupLog,
    settings: &NodeSettings,
) -> Result<Identity, NodeError> {
    // Which losses the opening accepted is not known later, so the membership ends in any case.
    let accepts_loss = store.recovery().accepts_loss;
    if let Some(mut identity) = Identity::read(log)? {
        if accepts_loss && identity.phase != Phase::Joining {
            identity.phase = Phase::Lost;
            identity.write(log).await?;
        }
        let (cluster, node) = (identity.cluster, identity.node);
        return match (identity.phase, &settings.begin) {
            (Phase::Lost, _) => Err(NodeError::LostRecords { node }),
            (Phase::Joining, Begin::Found { .. }) => Err(NodeError::IsMember { cluster, node }),
            (Phase::Joining, Begin::Member | Begin::Recover { .. }) => Err(NodeError::NoMember),
            (_, Begin::Found { .. }) if !identity.is_founder => Err(NodeError::IsMember { cluster, node }),
            _ => Ok(identity),
        };
    }
    check_empty(store, log)?;
    let random = || settings.runtime.random().max(1);
    let (phase, cluster, groups) = match &settings.begin {
        Begin::Found { groups } => (Phase::Founding, random(), *groups),
        Begin::Join { addresses } if !addresses.is_empty() => (Phase::Joining, 0, 0),
        Begin::Join { .. } | Begin::Member | Begin::Recover { .. } => return Err(NodeError::NoMember),
    };
    let is_founder = phase == Phase::Founding;
    let identity =
        Identity { phase, is_founder, cluster, node: random(), store: random(), groups, nodes: Vec::new() };
    identity.write(log).await?;
    Ok(identity)
}

/// Checks that a store without an identity has neither keys nor a log.
fn check_empty(store: &Store, log: &GroupLog) -> Result<(), NodeError> {
    let mut keys = 0;
    for number in 0..Store::DATABASES {
        keys += store.database(number)?.len();
    }
    if keys > 0 {
        return Err(NodeError::HasKeys { keys });
    }
    if log.groups().is_empty() { Ok(()) } else { Err(NodeError::HasLog) }
}

/// Asks the nodes at the addresses to become a member, until one of them says that it is so.
///
/// # Errors
/// If the identity cannot be written.
pub(super) async fn join(
    mut identity: Identity,
    log: &GroupLog,
    settings: &NodeSettings,
    peers: &Arc<dyn Peers>,
) -> Result<Identity, NodeError> {
    let record = own_record(settings, &identity);
    let Begin::Join { addresses } = &settings.begin else { return Err(NodeError::NoMember) };
    let mut pause = BACKOFF.0;
    loop {
        for address in addresses.iter().filter(|address| **address != record.peers) {
            match ask(address, &record, &settings.runtime, peers).await {
                Ok((cluster, groups, nodes)) => {
                    (identity.cluster, identity.groups, identity.nodes) = (cluster, groups, nodes);
                    identity.phase = Phase::Member;
                    identity.write(log).await?;
                    tracing::info!("joined cluster {cluster:016x} as node {:016x}", identity.node);
                    return Ok(identity);
                }
                Err(why) => tracing::warn!("waiting to join the cluster at {address}: {why}"),
            }
        }
        settings.runtime.sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Asks one address, and the addresses that it names.
async fn ask(
    address: &str,
    record: &PeerRecord,
    runtime: &Arc<dyn Runtime>,
    peers: &Arc<dyn Peers>,
) -> Result<(u64, u8, Vec<PeerRecord>), String> {
    let mut address = address.to_owned();
    for _ in 0..HOPS_MAX {
        if address == record.peers {
            return Err("the node would join itself; name another node of the cluster".into());
        }
        let answer = peers.ask(&address, PeerRequest::Join(record.clone()));
        match select(answer, runtime.sleep(PATIENCE)).await {
            Either::Left((Ok(PeerResponse::Joined { cluster, groups, nodes }), _)) => {
                return Ok((cluster, groups, nodes));
            }
            Either::Left((Ok(PeerResponse::Ask(other)), _)) => address = other,
            Either::Left((Ok(PeerResponse::Refused(why)) | Err(why), _)) => return Err(why),
            Either::Left((Ok(other), _)) => return Err(format!("it answered {other:?}")),
            Either::Right(_) => return Err(format!("no answer within {PATIENCE:?}")),
        }
    }
    Err(format!("{HOPS_MAX} nodes named each other as the leader; trying again"))
}

/// Checks that the nodes at the addresses of a member are of its cluster. Nodes that do not answer are passed over, and
/// nothing is asked if a node that it knows has one of the addresses.
///
/// # Errors
/// [`NodeError::OtherCluster`].
pub(super) async fn check_cluster(
    identity: &Identity,
    known: &[PeerRecord],
    settings: &NodeSettings,
    peers: &Arc<dyn Peers>,
) -> Result<(), NodeError> {
    let Begin::Join { addresses } = &settings.begin else { return Ok(()) };
    if addresses.iter().any(|address| known.iter().any(|record| record.peers == *address)) {
        return Ok(());
    }
    let record = own_record(settings, identity);
    for address in addresses {
        let answer = peers.ask(address, PeerRequest::Join(record.clone()));
        let why = match select(answer, settings.runtime.sleep(PATIENCE)).await {
            Either::Left((Ok(PeerResponse::Refused(why)) | Err(why), _)) => why,
            _ => continue,
        };
        if why.contains(OTHER_CLUSTER) {
            return Err(NodeError::OtherCluster { cluster: identity.cluster, address: address.clone(), why });
        }
    }
    Ok(())
}

/// Part of the text with which the network refuses a member of another cluster.
pub const OTHER_CLUSTER: &str = "is a member of the cluster";
