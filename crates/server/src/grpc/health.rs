//! `grpc.health.v1`: the server as a whole and `esker.v1.Esker` report the same as `/readyz`, and `esker.v1.Esker/write` the same
//! as `/readyz/write`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::sleep;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::base::shutdown::Stop;
use crate::service::Service;

/// Interval at which watched states are checked for changes.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Service name for the health of writes.
const WRITES: &str = "esker.v1.Esker/write";

/// Known service names.
const SERVICES: [&str; 3] = ["", "esker.v1.Esker", WRITES];

#[derive(Clone)]
pub(super) struct Health {
    service: Arc<Service>,
    stop: Stop,
}

impl Health {
    pub(super) fn new(service: Arc<Service>, stop: Stop) -> Health {
        Health { service, stop }
    }

    fn status(&self, of: &str) -> ServingStatus {
        let ready = match of {
            _ if !SERVICES.contains(&of) => return ServingStatus::ServiceUnknown,
            WRITES => self.service.check_ready_for_writes(),
            _ => self.service.check_ready(),
        };
        if ready.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl tonic_health::pb::health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match self.status(&request.get_ref().service) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("there is no such service")),
            status => Ok(Response::new(answer(status))),
        }
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let of = request.into_inner().service;
        let changes = stream::unfold((self.clone(), None), move |(health, told)| {
            let of = of.clone();
            async move {
                loop {
                    let now = health.status(&of);
                    if told != Some(now) {
                        return Some((Ok(answer(now)), (health, Some(now))));
                    }
                    sleep(LOOK_EVERY).await;
                }
            }
        });
        let mut stop = self.stop.clone();
        // The last message before the server stops is `NOT_SERVING`.
        let stopped = async move { stop.announced().await };
        let last = stream::once(async { Ok(answer(ServingStatus::NotServing)) });
        Ok(Response::new(changes.take_until(stopped).chain(last).boxed()))
    }
}
