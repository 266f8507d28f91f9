//! A device name becomes a burn device. The only place that names backends.
//!
//! burn's own default device prefers whatever accelerator it finds; batchlab always names one.

use burn::tensor::{DType, Device};

/// Why a device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Not a device of this build.
    #[error(
        "the device \"{name}\" is not available; this build has: {available}\n\
         hint: {}",
        hint(name)
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// What there is.
        available: String,
    },
    /// The backend is built in, but finds no hardware or driver.
    #[error(
        "the device \"{name}\" is built in, but no such device was found ({message}); \
         available here: {available}"
    )]
    Absent {
        /// The name asked for.
        name: String,
        /// What the backend said.
        message: String,
        /// What there is.
        available: String,
    },
    /// The device cannot compute in this precision.
    #[error("the device \"{name}\" cannot compute in {precision}; use flex")]
    Precision {
        /// The device.
        name: String,
        /// `"f32"` or `"f64"`.
        precision: &'static str,
    },
}

/// Devices that a feature of the crate adds.
const FEATURES: [&str; 3] = ["ndarray", "wgpu", "cuda"];

fn hint(name: &str) -> String {
    if FEATURES.contains(&name) {
        format!("build with `--features {name}`")
    } else {
        format!(
            "the devices are flex and, each by a feature of its own, {}",
            FEATURES.join(", ")
        )
    }
}

/// Names of the devices that this build knows, whether or not the hardware is there.
pub fn built_in() -> Vec<&'static str> {
    vec![
        "flex",
        #[cfg(feature = "ndarray")]
        "ndarray",
        #[cfg(feature = "wgpu")]
        "wgpu",
        #[cfg(feature = "cuda")]
        "cuda",
    ]
}

/// Names of the devices that can be used here and now.
pub fn available() -> Vec<&'static str> {
    built_in()
        .into_iter()
        .filter(|name| open(name).is_ok())
        .collect()
}

fn open(name: &str) -> Result<Device, String> {
    match name {
        "flex" => Ok(Device::flex()),
        #[cfg(feature = "ndarray")]
        #[expect(deprecated, reason = "kept as a second opinion while burn ships it")]
        "ndarray" => Ok(Device::ndarray()),
        #[cfg(feature = "wgpu")]
        "wgpu" => first(burn::tensor::DeviceType::Wgpu),
        #[cfg(feature = "cuda")]
        "cuda" => first(burn::tensor::DeviceType::Cuda),
        _ => Err("not in this build".to_owned()),
    }
}

/// The first device of a kind. Drivers that are not there may panic inside the backend.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn first(kind: burn::tensor::DeviceType) -> Result<Device, String> {
    let found = std::panic::catch_unwind(|| Device::enumerate(kind).into_iter().next());
    match found {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err("the backend lists no device".to_owned()),
        Err(_) => Err("the backend failed to list its devices".to_owned()),
    }
}

/// The device of this name, without autodiff.
///
/// # Errors
/// If this build or this machine has no such device; the error lists those it has.
pub fn device(name: &str) -> Result<Device, BackendError> {
    open(name).map_err(|message| {
        let name = name.to_owned();
        if built_in().contains(&name.as_str()) {
            BackendError::Absent {
                name,
                message,
                available: available().join(", "),
            }
        } else {
            BackendError::Unknown {
                name,
                available: available().join(", "),
            }
        }
    })
}

/// Checks that a device computes in a precision.
///
/// # Errors
/// If it does not.
pub fn check_precision(
    device: &Device,
    name: &str,
    dtype: DType,
    precision: &'static str,
) -> Result<(), BackendError> {
    if device.supports_dtype(dtype) {
        Ok(())
    } else {
        Err(BackendError::Precision {
            name: name.to_owned(),
            precision,
        })
    }
}
