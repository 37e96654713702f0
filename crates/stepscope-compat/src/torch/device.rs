//! Devices of events.

/// Device on which an event ran, in torch's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TorchDevice {
    /// On the host.
    #[default]
    Cpu,
    /// On a GPU of NVIDIA or AMD.
    Cuda,
    /// On a GPU of Intel.
    Xpu,
    /// On Meta's accelerator.
    Mtia,
    /// On an accelerator of a backend outside of torch.
    PrivateUse1,
}

impl TorchDevice {
    /// Returns the member of torch's `DeviceType`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Cuda => "CUDA",
            Self::Xpu => "XPU",
            Self::Mtia => "MTIA",
            Self::PrivateUse1 => "PrivateUse1",
        }
    }

    /// Returns torch's `use_device`, in lower case.
    pub(super) const fn use_device(self) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Cuda => Some("cuda"),
            Self::Xpu => Some("xpu"),
            Self::Mtia => Some("mtia"),
            Self::PrivateUse1 => Some("privateuse1"),
        }
    }

    /// Converts the number in memory records (c10's `DeviceType`); `None` for devices whose memory torch does not
    /// count.
    pub(crate) const fn from_memory_record(number: i64) -> Option<Self> {
        match number {
            0 | 2 | 5 => Some(Self::Cpu),
            1 | 6 => Some(Self::Cuda),
            12 => Some(Self::Xpu),
            20 => Some(Self::PrivateUse1),
            _ => None,
        }
    }
}
