//! Memory of the caller, in the hands of a device.

#![expect(unsafe_code, reason = "allocates whole pages, and lends memory that a device writes")]

use alloc::alloc::{alloc_zeroed, dealloc};
use alloc::boxed::Box;
use core::alloc::Layout;
use core::any::Any;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;

pub use stable_deref_trait::StableDeref;

use crate::{DeviceAccess, Dma, DmaBuffer, Error, ErrorKind};

mod sealed {
    pub trait Sealed {}
}

/// A number of which every pattern of bits is a value, so that a device may write it.
pub trait Word: sealed::Sealed + Copy + Send + Sync + 'static {}

macro_rules! words {
    ($($word:ty)*) => {
        $(
            impl sealed::Sealed for $word {}
            impl Word for $word {}
        )*
    };
}

words! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

/// Ordinary memory of the process that begins and ends on a page, so that a device can be let in
/// without seeing anything else.
///
/// Unlike a buffer of [`Dma::alloc`] it is a slice, which any code may fill or read while it is not
/// lent to a device.
pub struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for Pages {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates zeros: `len_bytes`, rounded up to whole granules, which are a power of two; see
    /// [`Dma::import_granule`]. `None` if there is not as much memory, for 0 bytes, or for another
    /// granule.
    #[must_use]
    pub fn zeroed(len_bytes: usize, granule_bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len_bytes, granule_bytes).ok()?.pad_to_align();
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size, zeroed, and owned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

// SAFETY: the memory is not part of the value, and never replaced.
unsafe impl StableDeref for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len_bytes", &self.layout.size()).finish_non_exhaustive()
    }
}

/// Why memory was not imported, and is copied instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bounce {
    /// The transport cannot import memory.
    Unsupported,
    /// It does not begin and end on a multiple of so many bytes, or has none: the rest of a page
    /// would be open to the device as well.
    Granule(usize),
    /// The transport refused it, as it does when the limit of locked memory is reached.
    Refused(ErrorKind),
}

impl fmt::Display for Bounce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("this transport cannot import memory"),
            Self::Granule(bytes) => {
                write!(f, "the memory is not made of whole pieces of {bytes} bytes")
            }
            Self::Refused(kind) => write!(f, "the transport refused the memory: {kind}"),
        }
    }
}

/// Memory that could not be lent: here it is.
pub struct ImportError<O, E> {
    /// The memory, as it was.
    pub owner: O,
    /// Why.
    pub error: E,
}

impl<O, E: fmt::Debug> fmt::Debug for ImportError<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<O, E> fmt::Display for ImportError<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory cannot be lent to the device")
    }
}

impl<O, E: core::error::Error + 'static> core::error::Error for ImportError<O, E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Where the owner's memory is, whatever becomes of the value that owns it.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address; what is done through it is done by `Import`, which has the owner.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn of<W: Word>(words: NonNull<W>, count: usize) -> Self {
        Self { start: words.cast(), len: count * size_of::<W>() }
    }

    fn is_made_of(&self, granule: usize) -> bool {
        let is_whole = |n: usize| n.is_multiple_of(granule);
        self.len != 0 && is_whole(self.start.addr().get()) && is_whole(self.len)
    }
}

/// Memory of the caller in the hands of a device, together with its owner.
///
/// Where the transport can, the device reaches the memory itself. Else the contents are copied to a
/// buffer that the device reaches, and back at the end. [`bounce`](Self::bounce) says which.
///
/// Nothing refers to the memory while it is here; the owner comes back when the device does not
/// reach it any more. Forgetting the value keeps it from everyone for ever.
pub struct Import<B> {
    // Goes first: until then the device may reach what the owner has.
    buffer: B,
    owner: Box<dyn Any + Send + Sync>,
    place: Place,
    access: DeviceAccess,
    bounce: Option<Bounce>,
}

impl<B: DmaBuffer> Import<B> {
    /// Lends memory that the device only reads, and others may read meanwhile, as that of an
    /// `Arc<[u8]>` or a `&'static [f32]`.
    ///
    /// # Errors
    /// Those of [`Dma::alloc`], if the contents have to be copied, and `Stale` and `Lost`.
    pub fn for_reading<D, O, W>(dma: &D, owner: O) -> Result<Self, ImportError<O, D::Error>>
    where
        D: Dma<Buffer = B> + ?Sized,
        O: StableDeref<Target = [W]> + Send + Sync + 'static,
        W: Word,
    {
        let owner = Box::new(owner);
        let words: &[W] = &owner;
        let place = Place::of(NonNull::from(words).cast::<W>(), words.len());
        Self::of(dma, owner, place, DeviceAccess::Read)
    }

    /// Lends memory that no one else sees meanwhile, as [`Pages`], a `Vec<f32>` or a
    /// `Box<[u8]>`, for what `access` says.
    ///
    /// # Errors
    /// As [`for_reading`](Self::for_reading).
    pub fn exclusive<D, O, W>(
        dma: &D,
        owner: O,
        access: DeviceAccess,
    ) -> Result<Self, ImportError<O, D::Error>>
    where
        D: Dma<Buffer = B> + ?Sized,
        O: StableDeref<Target = [W]> + DerefMut + Send + Sync + 'static,
        W: Word,
    {
        let mut owner = Box::new(owner);
        let words: &mut [W] = &mut owner;
        let count = words.len();
        let place = Place::of(NonNull::from(words).cast::<W>(), count);
        Self::of(dma, owner, place, access)
    }

    fn of<D, O>(
        dma: &D,
        owner: Box<O>,
        place: Place,
        access: DeviceAccess,
    ) -> Result<Self, ImportError<O, D::Error>>
    where
        D: Dma<Buffer = B> + ?Sized,
        O: Any + Send + Sync,
    {
        let bounce = match dma.import_granule() {
            None => Bounce::Unsupported,
            Some(granule) if !place.is_made_of(granule) => Bounce::Granule(granule),
            Some(_) => {
                // SAFETY: the owner keeps the memory where it is, initialised, and is dropped or
                // given away after the buffer. It came from a mutable reference unless it is only
                // read; then `buffer_mut` gives out nothing to write it with. No one else has a
                // reference that is used, unless all only read.
                match unsafe { dma.import_buffer(place.start, place.len, access) } {
                    Ok(Some(buffer)) => {
                        return Ok(Self { buffer, owner, place, access, bounce: None });
                    }
                    Ok(None) => Bounce::Unsupported,
                    Err(error) => match error.kind() {
                        kind @ (ErrorKind::Unsupported
                        | ErrorKind::Misaligned
                        | ErrorKind::TooLarge
                        | ErrorKind::Permission
                        | ErrorKind::Exhausted(_)) => Bounce::Refused(kind),
                        _ => return Err(ImportError { owner: *owner, error }),
                    },
                }
            }
        };
        let mut buffer = match dma.alloc(place.len.max(1), access) {
            Ok(buffer) => buffer,
            Err(error) => return Err(ImportError { owner: *owner, error }),
        };
        // SAFETY: these are the owner's bytes, which nothing writes during the call.
        let bytes = unsafe { slice::from_raw_parts(place.start.as_ptr(), place.len) };
        // What the device does not write is to come back as it was, so also for writing.
        if buffer.copy_in(0, bytes).is_err() {
            unreachable!("it was allocated with this length");
        }
        Ok(Self { buffer, owner, place, access, bounce: Some(bounce) })
    }

    /// Returns why the contents are copied; `None` if the device reaches the memory itself.
    #[must_use]
    pub fn bounce(&self) -> Option<Bounce> {
        self.bounce
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.place.len
    }

    /// Returns what it was lent for.
    #[must_use]
    pub fn access(&self) -> DeviceAccess {
        self.access
    }

    /// Returns the memory as the device knows it.
    #[must_use]
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// Returns the memory to be written; `None` if it was lent for reading, when others may look.
    #[must_use]
    pub fn buffer_mut(&mut self) -> Option<&mut B> {
        (self.access != DeviceAccess::Read).then_some(&mut self.buffer)
    }

    /// Takes the memory away from the device and gives the owner back, with all that is in the
    /// buffer.
    ///
    /// # Errors
    /// The value itself if the owner is of another type, or the contents cannot be copied back, as
    /// in a child of the process.
    pub fn into_owner<O: Any>(self) -> Result<O, Self> {
        if !self.owner.is::<O>() {
            return Err(self);
        }
        if self.bounce.is_some() && self.access != DeviceAccess::Read {
            let Place { start, len } = self.place;
            // SAFETY: these are the owner's bytes, got from a mutable reference, and nothing else
            // uses them before the owner is given away.
            let bytes = unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) };
            if self.buffer.copy_out(0, bytes).is_err() {
                return Err(self);
            }
        }
        let Self { buffer, owner, .. } = self;
        drop(buffer);
        match owner.downcast() {
            Ok(owner) => Ok(*owner),
            Err(_) => unreachable!("its type was looked at"),
        }
    }
}

impl<B> fmt::Debug for Import<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("len_bytes", &self.place.len)
            .field("access", &self.access)
            .field("bounce", &self.bounce)
            .finish_non_exhaustive()
    }
}
