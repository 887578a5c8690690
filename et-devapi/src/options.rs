//! The text form of options, as locators of devices have it.

/// Takes `key=value,key=value,…` apart.
///
/// Blanks around keys, values and items have no meaning, and neither have items without text. An
/// item without `=` comes as the error.
///
/// # Examples
///
/// ```
/// use et_devapi::options::key_values;
///
/// let mut options = key_values("mhz=700, seed = 1,,oops");
/// assert_eq!(options.next(), Some(Ok(("mhz", "700"))));
/// assert_eq!(options.next(), Some(Ok(("seed", "1"))));
/// assert_eq!(options.next(), Some(Err("oops")));
/// assert_eq!(options.next(), None);
/// ```
pub fn key_values(text: &str) -> impl Iterator<Item = Result<(&str, &str), &str>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| match item.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => Err(item),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_sign_of_an_item_separates() {
        assert!(key_values("a=b=c").eq([Ok(("a", "b=c"))]));
        assert!(key_values("=").eq([Ok(("", ""))]));
        assert!(key_values(" , ,").next().is_none());
    }
}
