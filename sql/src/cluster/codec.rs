//! The operators of this program on the wire.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::export::{ExportExec, json_error};

/// Before the JSON of an export. Ballista's own messages are Protobuf, which begins with a field number above zero.
const EXPORT: &[u8] = b"\0stepscope export";

/// Encodes [`ExportExec`], and leaves the rest to Ballista.
#[derive(Debug)]
pub(super) struct Codec;

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(options) = bytes.strip_prefix(EXPORT) else {
            let others = BallistaPhysicalExtensionCodec::default();
            return others.try_decode(bytes, inputs, context, converter);
        };
        let [input] = inputs else {
            return Err(DataFusionError::Internal(
                "an export has one input".to_owned(),
            ));
        };
        let job = serde_json::from_slice(options).map_err(json_error)?;
        Ok(Arc::new(ExportExec::new(Arc::clone(input), job)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(export) = node.downcast_ref::<ExportExec>() else {
            return BallistaPhysicalExtensionCodec::default().try_encode(node, bytes, converter);
        };
        bytes.extend_from_slice(EXPORT);
        serde_json::to_writer(bytes, export.job()).map_err(json_error)
    }
}
