//! Real programs, ready to be measured: `ample bench --apps`.
//!
//! An [`App`] knows which programs it needs and how they are got, makes its input in a scratch folder, always the
//! same, and checks what every run has produced. [`AppsExecutor`] runs them where the campaign expects
//! workloads, each by a [`crate::trial::TrialExecutor`].

mod catalogue;
mod compilers;
mod databases;
mod documents;
mod executor;
mod interpreters;
mod needs;
mod pdf;
mod servers;
mod site;

pub use catalogue::{App, all, choose};
pub use executor::AppsExecutor;
pub use needs::{find, served};
pub use site::{Site, scratch};
