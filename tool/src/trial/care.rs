//! What a program needs before each run, and what its run must have produced.

use std::fmt;
use std::io;

/// Makes the state that a run begins with.
type Prepare = Box<dyn Fn() -> io::Result<()>>;
/// What a run produced, from what it printed: a fingerprint; or what is wrong with it.
type Product = Box<dyn Fn(&str) -> Result<String, String>>;

/// How to look after a program whose work is known.
pub struct Care {
    prepare: Prepare,
    product: Product,
}

impl Care {
    /// `prepare` makes the state that every run begins with. `product` looks at the files of a run and at its
    /// output (of a server, that of its load): it fails where they are wrong in themselves, and tells otherwise
    /// in a word what they are, which must be the same in every run.
    pub fn new(
        prepare: impl Fn() -> io::Result<()> + 'static,
        product: impl Fn(&str) -> Result<String, String> + 'static,
    ) -> Self {
        Self { prepare: Box::new(prepare), product: Box::new(product) }
    }

    /// Makes the state that a run begins with.
    pub(super) fn prepare(&self) -> io::Result<()> {
        (self.prepare)()
    }

    /// What a run produced; fails where that is wrong, or differs from the `reference` run's.
    pub(super) fn product(&self, output: &str, reference: Option<&str>) -> Result<String, String> {
        let found = (self.product)(output)?;
        match reference {
            Some(wanted) if wanted != found => {
                Err(format!("wrong output: {found} instead of {wanted}, which it is without a preload"))
            }
            _ => Ok(found),
        }
    }
}

impl fmt::Debug for Care {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Care")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_held_against_the_reference_and_against_itself() {
        let care = Care::new(
            || Ok(()),
            |output| match output {
                "" => Err("no output".into()),
                output => Ok(format!("{} bytes", output.len())),
            },
        );
        assert_eq!(care.product("abc", None), Ok("3 bytes".into()));
        assert_eq!(care.product("abc", Some("3 bytes")), Ok("3 bytes".into()));
        assert_eq!(care.product("", Some("3 bytes")), Err("no output".into()));
        let wrong = care.product("abcd", Some("3 bytes")).expect_err("refused");
        assert!(wrong.starts_with("wrong output: 4 bytes instead of 3 bytes"), "{wrong}");
    }
}
