//! Types accepted as keys and values.

use std::borrow::Cow;

use bytes::Bytes;

/// A key or value passed to a write: a slice, string, array, vector or [`Bytes`], owned or borrowed.
///
/// Owned values are moved and [`Bytes`] are shared; borrowed values are copied once.
pub trait ToBytes {
    /// Returns the bytes, copied if they cannot be shared.
    fn to_bytes(&self) -> Bytes;

    /// Returns the bytes, without a copy if possible.
    fn into_bytes(self) -> Bytes
    where
        Self: Sized,
    {
        self.to_bytes()
    }
}

impl ToBytes for [u8] {
    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl ToBytes for str {
    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }
}

impl<const N: usize> ToBytes for [u8; N] {
    fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl ToBytes for Bytes {
    fn to_bytes(&self) -> Bytes {
        self.clone()
    }

    fn into_bytes(self) -> Bytes {
        self
    }
}

macro_rules! moved {
    ($($owned:ty),*) => {
        $(impl ToBytes for $owned {
            fn to_bytes(&self) -> Bytes {
                Bytes::copy_from_slice(self.as_ref())
            }

            fn into_bytes(self) -> Bytes {
                Bytes::from(self)
            }
        })*
    };
}

moved!(Vec<u8>, String, Box<[u8]>);

impl<T: ToBytes + ToOwned<Owned: ToBytes> + ?Sized> ToBytes for Cow<'_, T> {
    fn to_bytes(&self) -> Bytes {
        (**self).to_bytes()
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Cow::Borrowed(borrowed) => borrowed.to_bytes(),
            Cow::Owned(owned) => owned.into_bytes(),
        }
    }
}

impl<T: ToBytes + ?Sized> ToBytes for &T {
    fn to_bytes(&self) -> Bytes {
        (**self).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(bytes: impl ToBytes) -> Bytes {
        bytes.into_bytes()
    }

    #[test]
    fn to_bytes_accepts_all_byte_containers() {
        let (vec, string, bytes) = (b"key".to_vec(), "key".to_string(), Bytes::from_static(b"key"));
        for bytes in [
            given(&vec),
            given(&vec[..]),
            given(&string),
            given(string.as_str()),
            given(["key"].first().expect("there is one")),
            given(&bytes),
            given(*b"key"),
            given(b"key"),
            given(Cow::Borrowed("key")),
            given(Cow::<[u8]>::Owned(vec.clone())),
            given(vec.clone().into_boxed_slice()),
            given(vec.clone()),
            given(string.clone()),
            given(bytes.clone()),
        ] {
            assert_eq!(bytes, &b"key"[..]);
        }
    }

    #[test]
    fn to_bytes_moves_owned_data_and_shares_bytes() {
        let (vec, string, bytes) = (vec![1u8; 100], "k".repeat(100), Bytes::from(vec![2u8; 100]));
        let (at_vec, at_string, at_bytes) = (vec.as_ptr(), string.as_ptr(), bytes.as_ptr());
        assert_eq!(given(&bytes).as_ptr(), at_bytes);
        assert_eq!(given(bytes).as_ptr(), at_bytes);
        assert_eq!(given(vec).as_ptr(), at_vec);
        assert_eq!(given(string).as_ptr(), at_string);
    }
}
