//! `tensorflow.ProfilerService`.

use std::sync::Arc;

use stepscope_model::clock::unix_now_ns;
use tonic::{Request, Response, Status, async_trait};

use super::advanced::cut;
use super::capture;
use super::connections::ConnectionState;
use super::request;
use super::response::deliver;
use super::{State, flight, monitor};
use crate::proto::profiler_service_server::ProfilerService;
use crate::proto::{
    ContinuousProfilingResponse, GetSnapshotRequest, MonitorRequest, MonitorResponse,
    ProfileRequest, ProfileResponse, StopContinuousProfilingRequest,
    StopContinuousProfilingResponse, TerminateRequest, TerminateResponse,
};

/// The capture service.
#[derive(Clone, Debug)]
pub(super) struct Profiler {
    pub(super) state: Arc<State>,
}

#[async_trait]
impl ProfilerService for Profiler {
    async fn profile(
        &self,
        request: Request<ProfileRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        let peer = peer(&request);
        let wanted = request::capture(request.get_ref(), &self.state.bounds, unix_now_ns())?;
        let recorded = capture::record(&self.state, &wanted, peer).await?;
        deliver(&self.state, wanted, recorded).await
    }

    async fn terminate(
        &self,
        request: Request<TerminateRequest>,
    ) -> Result<Response<TerminateResponse>, Status> {
        let session = &request.get_ref().session_id;
        if self.state.slot.end(session) {
            return Ok(Response::new(TerminateResponse {}));
        }
        Err(Status::not_found(match self.state.slot.present() {
            Some(present) => format!("no capture {:?}; there is {present}", cut(session)),
            None => "no capture is under way".to_owned(),
        }))
    }

    async fn monitor(
        &self,
        request: Request<MonitorRequest>,
    ) -> Result<Response<MonitorResponse>, Status> {
        let answer = monitor::monitor(&self.state, request.get_ref()).await?;
        Ok(Response::new(answer))
    }

    async fn start_continuous_profiling(
        &self,
        request: Request<ProfileRequest>,
    ) -> Result<Response<ContinuousProfilingResponse>, Status> {
        flight::begin(&self.state, request.get_ref()).await?;
        Ok(Response::new(ContinuousProfilingResponse {}))
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        let session = &request.get_ref().snapshot_session_id;
        flight::snapshot(&self.state, session, request.metadata()).await
    }

    async fn stop_continuous_profiling(
        &self,
        _request: Request<StopContinuousProfilingRequest>,
    ) -> Result<Response<StopContinuousProfilingResponse>, Status> {
        flight::end(&self.state).await?;
        Ok(Response::new(StopContinuousProfilingResponse {}))
    }

    async fn continuous_profiling(
        &self,
        request: Request<ProfileRequest>,
    ) -> Result<Response<ContinuousProfilingResponse>, Status> {
        self.start_continuous_profiling(request).await
    }

    async fn get_snap_shot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        self.get_snapshot(request).await
    }
}

/// Returns the address of the client.
fn peer<T>(request: &Request<T>) -> String {
    match request.extensions().get::<Arc<ConnectionState>>() {
        Some(place) => place.peer.to_string(),
        None => "an unknown client".to_owned(),
    }
}
