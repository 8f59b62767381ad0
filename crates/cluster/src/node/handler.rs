//! Requests of other nodes.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::core::Node;
use crate::levels::Program;
use crate::peers::{PeerHandler, PeerRequest, PeerResponse};

fn refused(why: impl Into<String>) -> BoxFuture<'static, PeerResponse> {
    Box::pin(std::future::ready(PeerResponse::Refused(why.into())))
}

impl PeerHandler for Node {
    fn position(&self) -> u64 {
        self.log.durable_records()
    }

    fn handle(&self, from: Option<u64>, request: PeerRequest) -> BoxFuture<'static, PeerResponse> {
        let node = self.shared();
        let group = match &request {
            PeerRequest::Raft { group, .. }
            | PeerRequest::SnapshotPart { group, .. }
            | PeerRequest::Transfer { group, .. } => *group,
            PeerRequest::States => {
                let states = node.states();
                return Box::pin(std::future::ready(PeerResponse::States(states)));
            }
            PeerRequest::Program => {
                return Box::pin(std::future::ready(PeerResponse::Program(Program::own())));
            }
            PeerRequest::Finalize => {
                return match from {
                    Some(_) => async move { node.finalize_here().await }.boxed(),
                    None => refused("only a member finalizes an upgrade"),
                };
            }
            PeerRequest::Join(record) => {
                let record = record.clone();
                return async move { node.admit(record).await }.boxed();
            }
            PeerRequest::Order(order) => {
                let order = *order;
                return match from {
                    Some(_) => async move { node.order_here(order).await }.boxed(),
                    None => refused("only a member orders a change of the placement"),
                };
            }
            PeerRequest::Report(report) => {
                return match from {
                    Some(from) => Box::pin(std::future::ready(node.take_report(from, report.clone()))),
                    None => refused("only a member reports"),
                };
            }
            PeerRequest::Members { group } => {
                let replica = node.replica(*group).filter(|_| from.is_some()).cloned();
                return async move {
                    let Some(replica) = replica else {
                        return PeerResponse::Refused(
                            "the sender is no member, or there is no such group".into(),
                        );
                    };
                    match replica.members().await {
                        Ok((nodes, id)) => PeerResponse::Members { nodes, id },
                        Err(why) => PeerResponse::Refused(why.to_string()),
                    }
                }
                .boxed();
            }
            PeerRequest::Rewrite { group, key } => {
                let (group, key) = (*group, key.clone());
                return match from {
                    Some(_) => async move { node.rewrite_here(group, key).await }.boxed(),
                    None => refused("only a member heals records"),
                };
            }
            PeerRequest::Keys { group, applied, cursor } => {
                let replica = node.replica(*group).filter(|_| from.is_some()).cloned();
                let (applied, cursor) = (*applied, *cursor);
                return async move {
                    let Some(replica) = replica else {
                        return PeerResponse::Refused(
                            "the sender is no member, or there is no such group".into(),
                        );
                    };
                    replica
                        .list_keys(applied, cursor)
                        .await
                        .map_or_else(PeerResponse::Refused, PeerResponse::Keys)
                }
                .boxed();
            }
            PeerRequest::Damage => {
                let damage = node.own_damage();
                return Box::pin(std::future::ready(PeerResponse::Damage(damage)));
            }
            PeerRequest::ReadIndexes(groups) => {
                let groups = *groups;
                return match from {
                    Some(_) => {
                        async move { PeerResponse::ReadIndexes(node.read_indexes(groups).await) }.boxed()
                    }
                    None => refused("only a member asks for positions of groups"),
                };
            }
            PeerRequest::Publish(messages) => {
                return match from {
                    Some(_) => {
                        node.publishing.receive(messages);
                        std::future::ready(PeerResponse::Done).boxed()
                    }
                    None => refused("only a member publishes messages"),
                };
            }
            PeerRequest::Remove { node: removed } => {
                let removed = *removed;
                return match from {
                    Some(_) => async move { node.remove_here(removed).await }.boxed(),
                    None => refused("only a member removes a node"),
                };
            }
        };
        match (from, node.replica(group)) {
            (None, _) => refused("the sender is no member of the cluster"),
            (_, None) => refused(format!("there is no group {group}")),
            (Some(from), Some(replica)) => replica.handle(from, request),
        }
    }
}
