//! The two floating-point types that training state comes in.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use crate::collective::Element;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A floating-point number of training state: `f32` or `f64`.
pub trait Scalar:
    sealed::Sealed
    + Element
    + Copy
    + Default
    + Debug
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The name used in TOML and in files: `"f32"` or `"f64"`.
    const NAME: &'static str;
    /// Size in bytes.
    const BYTES: usize;

    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The value of an `f32`, exactly.
    fn from_f32(value: f32) -> Self;
    /// This value as `f64`, exactly.
    fn to_f64(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// The little-endian bytes of all values, one after the other.
    fn le_bytes(values: &[Self]) -> Vec<u8>;
    /// Reads little-endian bytes; `bytes` has length [`Scalar::BYTES`].
    fn from_le_slice(bytes: &[u8]) -> Self;
}

macro_rules! scalar {
    ($type:ident) => {
        impl Scalar for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAME: &'static str = stringify!($type);
            const BYTES: usize = size_of::<$type>();

            fn from_f64(value: f64) -> Self {
                value as $type
            }
            fn from_f32(value: f32) -> Self {
                value.into()
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }
            fn le_bytes(values: &[Self]) -> Vec<u8> {
                values.iter().flat_map(|v| v.to_le_bytes()).collect()
            }
            fn from_le_slice(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$type>()];
                array.copy_from_slice(bytes);
                $type::from_le_bytes(array)
            }
        }
    };
}
scalar!(f32);
scalar!(f64);
