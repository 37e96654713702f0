//! The process that divides the work.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::flight_proxy_service::BallistaFlightProxyService;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::clients::{ClientJobs, Scheduler};
use super::codec::Codec;
use super::context;
use super::{HEARTBEAT, LONGEST_MESSAGE, LOST_AFTER, Listen, host_of, session_config};
use crate::runtime::runtime;

/// Runs a scheduler until the process ends. `started` receives its address.
pub fn serve(listen: &Listen, started: impl FnOnce(String)) -> Result<(), String> {
    listen.check("scheduler")?;
    let host = listen.host()?;
    let failed = |error: &dyn std::error::Error| {
        format!("cannot run the scheduler at {}: {error}", listen.bind)
    };
    let threads = runtime().map_err(|error| failed(&error))?;
    threads.block_on(async {
        let listener = TcpListener::bind(listen.bind).await;
        let listener = listener.map_err(|error| failed(&error))?;
        let port = listener
            .local_addr()
            .map_err(|error| failed(&error))?
            .port();
        let config = SchedulerConfig {
            external_host: host.clone(),
            bind_host: host_of(listen.bind.ip()),
            bind_port: port,
            executor_timeout_seconds: LOST_AFTER.as_secs(),
            expire_dead_executor_interval_seconds: HEARTBEAT.as_secs(),
            no_executors_grace_period_seconds: LOST_AFTER.as_secs(),
            grpc_server_max_decoding_message_size: LONGEST_MESSAGE,
            grpc_server_max_encoding_message_size: LONGEST_MESSAGE,
            grpc_client_max_message_size: LONGEST_MESSAGE,
            // Clients reach the scheduler only.
            enable_embedded_flight_proxy: true,
            override_config_producer: Some(Arc::new(session_config)),
            override_session_builder: Some(Arc::new(|config| Ok(context::state(config)))),
            override_physical_codec: Some(Arc::new(Codec)),
            ..SchedulerConfig::default()
        };
        let cluster = BallistaCluster::new_from_config(&config).await;
        let cluster = cluster.map_err(|error| failed(&error))?;
        let scheduler = create_scheduler(cluster, Arc::new(config)).await;
        let scheduler = scheduler.map_err(|error| failed(&error))?;
        started(format!("df://{host}:{port}"));
        let ended = answer(listener, scheduler).await;
        ended.map_err(|error| failed(&error))
    })
}

/// Answers clients and executors. Clients get the results of executors here, too.
async fn answer(
    listener: TcpListener,
    scheduler: Scheduler,
) -> Result<(), tonic::transport::Error> {
    let longest = LONGEST_MESSAGE as usize;
    let jobs = SchedulerGrpcServer::new(ClientJobs(scheduler))
        .max_encoding_message_size(longest)
        .max_decoding_message_size(longest);
    let results = BallistaFlightProxyService::new(longest, longest, false, None);
    let results = FlightServiceServer::new(results)
        .max_encoding_message_size(longest)
        .max_decoding_message_size(longest);
    Server::builder()
        // Finds clients whose machine has gone without a word.
        .http2_keepalive_interval(Some(LOST_AFTER))
        .add_service(jobs)
        .add_service(results)
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await
}
