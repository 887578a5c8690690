//! Files of arrays of one dimension.

use std::path::Path;

use npyz::WriterBuilder;

pub(crate) fn save<T: npyz::AutoSerialize + Copy>(path: impl AsRef<Path>, values: &[T]) {
    let file = std::fs::File::create(path).unwrap();
    let shape = [values.len() as u64];
    let writer = npyz::WriteOptions::<T>::new().default_dtype().shape(&shape).writer(file);
    let mut writer = writer.begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
}
