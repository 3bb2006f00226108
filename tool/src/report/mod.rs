//! What a person sees: the summary of a run as a sentence, a table, a page.
//!
//! [`Summary`] is computed once from the samples; the text table, the JSON output and the HTML
//! report only lay it out.

mod again;
mod axis;
mod behind;
mod changes;
mod charges;
mod columns;
mod compared;
mod comparison;
mod counted;
mod distribution;
mod explained;
mod frontier;
mod gaps;
mod grids;
mod html;
mod kept;
mod labels;
mod leak;
mod lines;
mod measured;
mod measures;
mod memory_curves;
mod observed;
mod overview;
mod palette;
mod plots;
mod rounds;
mod running;
mod seed_lines;
mod series;
mod summarise;
mod summary;
mod svg;
mod table;
mod tails;
mod then_now;
mod trade_off;
mod units;
mod verdict;

pub use changes::{Changes, Incomparable};
pub use columns::{rows, terminal_width, wrapped_rows};
pub use compared::Compared;
pub use comparison::Comparison;
pub use html::write;
pub use kept::Kept;
pub use observed::observed;
pub use overview::{Overview, Told};
pub use running::running;
pub use seed_lines::seed_lines;
pub use summary::{Cell, Summary};
pub use table::text_table;
pub use units::{interval, multiple};
